"""Reservation: a Reservation is scheduled as a pod is, keeps its resources free, and gives them to the pods that own
it.

The cache counts what is reserved and taken; ``reserve_pod`` has a Reservation scheduled and bound, ``pod_points`` has
the extension points that pods pass, and ``nomination`` the choice of a pod's Reservation. This module has PostFilter,
Score, and the rest.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final

from prometheus_client.registry import Collector

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import POD_DISRUPTION_BUDGETS, RESERVATIONS
from koordinator.api.labels import DISABLE_PREEMPTIBLE
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.base.services import Service, ServiceError
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask
from koordinator.scheduler.engine.events import ClusterEvent, object_event
from koordinator.scheduler.engine.framework import SKIP_SCORE, EventHandler, default_normalize
from koordinator.scheduler.engine.framework_hooks import (
    RESERVED,
    Controller,
    ControllerProvider,
    FailureHandler,
    MetricsProvider,
    ServiceProvider,
)
from koordinator.scheduler.engine.plugin_forms import ElementwiseScorePlugin, SomeRows, each_row, zeros
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NO_PLAN, FailedAttempt, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.preemption import PodPreemption
from koordinator.scheduler.plugins.reservation.booking import Awaited
from koordinator.scheduler.plugins.reservation.controller import ReservationController
from koordinator.scheduler.plugins.reservation.documents import (
    explain_reservation,
    node_reservations,
    reservation_gauges,
)
from koordinator.scheduler.plugins.reservation.matching import requirements_of
from koordinator.scheduler.plugins.reservation.nomination import Owned, event_note, score, summary
from koordinator.scheduler.plugins.reservation.pod_points import Owner, PodPoints, ReservePod
from koordinator.scheduler.plugins.reservation.pre_allocation import node_score
from koordinator.scheduler.plugins.reservation.reserve_pod import ReservePods, is_operating, stands_for_a_reservation

_PREFERRED: Final = 1000
"""The score of the node whose Reservation comes first by its label ``reservation-order``."""


class ReservationPlugin(
    PodPoints,
    PostFilterPlugin,
    ElementwiseScorePlugin,
    FailureHandler,
    ControllerProvider,
    ServiceProvider,
    MetricsProvider,
):
    watches: ClassVar = (RESERVATIONS, POD_DISRUPTION_BUDGETS)
    score_reads: ClassVar = (Aspect.PODS, RESERVED)
    scales_zeros_alike = True
    part_types = (ReservePods,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        preempts = args is not None and args.enable_preemption
        self._preemption = PodPreemption(self, args, _is_preemptible) if preempts else None
        self.parts = (ReservePods(args, view, self._settled),)
        self._cache.on_opened, self._cache.on_fault = self._announce, self._report_pod

    @property
    def event_handler(self) -> EventHandler:
        return self._cache

    def concerns(self, pod: PodInfo) -> bool:
        metadata = pod.pod.metadata
        of_its_own = stands_for_a_reservation(pod.pod) or annotation_keys.RESERVATION_ALLOCATED in metadata.annotations
        return bool(self._cache.bookings) or of_its_own or requirements_of(pod).affinity is not None

    # PostFilter.

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        plan = self._preemption.plan(pod, attempt).result if self._preemption is not None else NO_PLAN
        if plan.found:
            self._await(pod, plan, attempt)
            return plan
        message = ", ".join(text for text in (plan.message, self._summary(pod, attempt)) if text)
        return replace(plan, message=message)

    def _await(self, pod: PodInfo, plan: PostFilterResult, attempt: FailedAttempt) -> None:
        """Record the Reservation that the pod is going to take from when the victims have left: no owner of lower
        priority gets that."""
        assert plan.nominated_node
        match, requirements = self._cache.match(pod), requirements_of(pod)
        self._cache.awaited.pop(pod.uid, None)
        if stands_for_a_reservation(pod.pod) or requirements.ignored or not match.uids:
            return
        row = self.view.columns.row_of[plan.nominated_node]
        with self.handle.simulate(attempt) as simulation:
            for victim in plan.victims:
                simulation.remove(victim)
            booking = self._nominator.nominated(pod, row, match, requirements)
        if booking is not None:
            self._cache.awaited[pod.uid] = Awaited(plan.nominated_node, booking.uid)

    def _summary(self, pod: PodInfo, attempt: FailedAttempt) -> str:
        """How many of the Reservations that the pod owns, or of the pods that a Reservation may take over, are
        unavailable for which reasons."""
        if stands_for_a_reservation(pod.pod):
            booking = self._taking_over(pod)
            owned = Owned(*self._pre_allocator.sorted_out(booking)) if booking is not None else Owned((), ())
            is_asked = bool(owned.matched or owned.unmatched)
        else:
            match, affinity = self._cache.match(pod), requirements_of(pod).affinity
            nodes = [self._cache.bookings[uid].node_name for uid in match.uids]
            owned = Owned(nodes, match.unmatched, by_name=affinity is not None and bool(affinity.name))
            is_asked = not requirements_of(pod).problem and (not match.is_empty or affinity is not None)
        return summary(owned, attempt.statuses, self.view.columns.names) if is_asked else ""

    def result_key(self, pod: PodInfo) -> Hashable:
        by_preemption = (pod.priority, pod.pod.spec.preemption_policy) if self._preemption is not None else None
        return self.name, self.context_key(pod), by_preemption

    # Score.

    def pre_score(self, pod: PodInfo) -> Any:
        requirements, match = requirements_of(pod), self._cache.match(pod)
        if stands_for_a_reservation(pod.pod):
            booking = self._taking_over(pod)
            return SKIP_SCORE if booking is None else ReservePod("", "", booking)
        if requirements.ignored or not match.uids:
            return SKIP_SCORE
        return Owner(match, requirements, is_operating(pod.pod))

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        if isinstance(rows, int):
            return self._score_on(pod, state, rows)
        of_one, bookings = partial(self._score_on, pod, state), self._cache.bookings
        if isinstance(state, ReservePod):
            return each_row(rows, of_one)
        scores, reserved = zeros(rows), {bookings[uid].row for uid in state.match.uids if uid in bookings}
        for index, row in enumerate(rows.tolist()):
            if row in reserved:
                scores[index] = of_one(row)
        return scores

    def _score_on(self, pod: PodInfo, state: Any, row: int) -> int:
        if isinstance(state, ReservePod):
            taking_over = state.taking_over
            assert taking_over is not None, "the others are not scored"
            found = self._pre_allocator.offered(taking_over, self._nominator.checked(pod), row)
            return node_score(taking_over, found.pods)
        owner: Owner = state
        booking = self._nominator.nominated(pod, row, owner.match, owner.requirements)
        if booking is None:
            return 0
        if booking.uid == owner.match.first:
            return _PREFERRED
        return score(booking, pod.request.amounts)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        return None if isinstance(state, ReservePod) else default_normalize(raw, feasible, reverse=False)

    # Failures and controllers.

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        reservation = self._reservation(pod) if stands_for_a_reservation(pod.pod) else None
        if reservation is not None:
            self._cache.failures[reservation.metadata.uid] = message
            self.handle.object_event(RESERVATIONS, reservation, "Warning", "FailedScheduling", "Scheduling", message)
        return False

    def after_failure(self, pod: PodInfo, message: str) -> None:
        if annotation_keys.RESERVATION_AFFINITY in pod.pod.metadata.annotations:
            note = event_note(message)
            if note:
                self.handle.pod_event(pod.pod, "Warning", "FailedScheduling-Reservation", "Scheduling", note)

    def controllers(self, writer: ControllerWriter) -> Sequence[Controller]:
        kept = None if self.args.disable_garbage_collection else timedelta(seconds=self.args.gc_duration_seconds)
        controller = ReservationController(
            self._cache,
            self.view,
            writer,
            self._report,
            kept=kept,
            cleans_every=self.args.gc_interval_seconds,
        )
        return (controller,)

    def _report(self, reservation: Reservation, fault: str) -> None:
        self.handle.object_event(RESERVATIONS, reservation, "Warning", "InvalidReservation", "Reconcile", fault)

    # Services and metrics.

    def services(self) -> Mapping[str, Service]:
        return {
            "/reservations/:name/explanation": self._explanation,
            "/nodeReservations/:nodeName": lambda given: node_reservations(self._cache, given["nodeName"]),
            "/reservationSelectorIndex": lambda given: self._cache.selector_index.document(
                detail=given.get("detail") == "true"
            ),
        }

    def collectors(self) -> Sequence[Collector]:
        gauges = reservation_gauges(lambda: self.view.objects_of(RESERVATIONS).values())
        return *gauges, self._cache.selector_index.metrics

    def _explanation(self, parameters: Mapping[str, str]) -> Any:
        found = self.view.objects_of(RESERVATIONS).get(parameters["name"])
        if found is None:
            raise ServiceError(404, f"cannot find reservation {parameters['name']}")
        return explain_reservation(self._cache, found, self._nominator.refusal)

    def _announce(self, reservation: Reservation) -> None:
        """Report that owners may use the Reservation of an operating-mode pod."""
        if hasattr(self, "handle"):
            kind = object_event(RESERVATIONS, reservation, reservation)
            self.handle.announce(ClusterEvent(kind, reservation, reservation))

    def _report_pod(self, pod: Pod, fault: str) -> None:
        if hasattr(self, "handle"):
            self.handle.pod_event(pod, "Warning", "InvalidReservation", "Reconcile", fault)

    def _settled(self, uid: str) -> None:
        self._cache.failures.pop(uid, None)
        self._pre_allocator.forget(uid)


def _is_preemptible(pod: PodInfo) -> bool:
    return pod.pod.metadata.labels.get(DISABLE_PREEMPTIBLE) != "true"
