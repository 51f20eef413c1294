"""Reservation: a Reservation is placed as a pod is, keeps its room free, and gives it to the pods that own it.

The cache counts what is reserved and taken. Pods that may take from Reservations see the nodes of these without them
(row overlays), so that every Filter plugin evaluates the room that they really have; then this plugin checks that one
Reservation by itself lets the pod in.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from prometheus_client.registry import Collector

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import PODS, RESERVATIONS
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import ALIGNED, FAILED, Reservation
from koordinator.base.services import Service, ServiceError
from koordinator.scheduler.engine.adjustment import Adjustment
from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    BindOutcome,
    BindPlugin,
    ClusterWriter,
    ControllerWriter,
    PodChanges,
    PreBindPlugin,
)
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, NodeReference, Rows
from koordinator.scheduler.engine.cycle_state import CycleState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_event, object_events
from koordinator.scheduler.engine.framework import (
    FEASIBLE,
    SKIP_SCORE,
    EventHandler,
    FilterPlugin,
    PluginError,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
    default_normalize,
)
from koordinator.scheduler.engine.framework_hooks import (
    Controller,
    ControllerProvider,
    FailureHandler,
    FilterTransformer,
    MetricsProvider,
    ReservationPreBindPlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.reservation_points import reservation_of
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.reservation.booking import Booking, Columns, Match
from koordinator.scheduler.plugins.reservation.cache import RESERVED, ReservationCache
from koordinator.scheduler.plugins.reservation.controller import ReservationController
from koordinator.scheduler.plugins.reservation.documents import explain_reservation, node_reservations
from koordinator.scheduler.plugins.reservation.fitting import (
    BY_NODE,
    NONE_MATCHES,
    NONE_SUITS,
    OTHER_NODE,
    POLICY_CONFLICT,
    Room,
    score,
    shares_a_resource,
)
from koordinator.scheduler.plugins.reservation.life_cycle import available_status
from koordinator.scheduler.plugins.reservation.matching import Wish, wish_key, wish_of
from koordinator.scheduler.plugins.reservation.messages import event_note, summary
from koordinator.scheduler.plugins.reservation.metrics import ReservationGauges
from koordinator.scheduler.plugins.reservation.operating_pod import is_operating
from koordinator.scheduler.plugins.reservation.pre_allocation import NO_CANDIDATE, PreAllocator, is_required, node_score
from koordinator.scheduler.plugins.reservation.reserve_pod import (
    allocated_annotation,
    allocated_record,
    pinned_node,
    stands_for_a_reservation,
)
from koordinator.scheduler.plugins.resources_key import resources_key
from koordinator.scheduler.services.provider import ServiceProvider

_NONE: Final[tuple[frozenset[str], frozenset[str]]] = frozenset(), frozenset()
_PREFERRED: Final = 1000
"""The score of the node whose Reservation comes first by its label ``reservation-order``."""
_OTHER_NODE: Final = 1
_CONFLICT: Final = 2
_FIRST_CODE: Final = 3


class TakeOver(NamedTuple):
    """What a reserve pod holds: the running pods that its Reservation takes over."""

    uid: str
    pods: tuple[PodInfo, ...]


class Use(NamedTuple):
    """What a pod holds: the Reservation that it takes from."""

    name: str
    uid: str


@dataclass(slots=True, kw_only=True)
class _Coded:
    """What a class of pods is rejected for, as codes."""

    combinations: list[tuple[Reason, ...]] = field(default_factory=list)
    """The reasons of the codes from _FIRST_CODE on."""

    def code_of(self, reasons: tuple[Reason, ...]) -> int:
        if reasons not in self.combinations:
            self.combinations.append(reasons)
        return self.combinations.index(reasons) + _FIRST_CODE


@dataclass(slots=True)
class _Owner(_Coded):
    """A class of pods that own Reservations, or must use one, or stand for one once they run."""

    match: Match
    wish: Wish
    is_operating: bool


@dataclass(slots=True)
class _ReservePod(_Coded):
    """A class of reserve pods. ``taking_over``: of one that may take over running pods."""

    pinned: str
    policy: str
    taking_over: Booking | None = None


class ReservationPlugin(
    PreFilterPlugin,
    Explainer,
    FilterPlugin,
    FilterTransformer,
    PostFilterPlugin,
    ScorePlugin,
    AllocatorPlugin,
    PreBindPlugin,
    ReservationPreBindPlugin,
    BindPlugin,
    FailureHandler,
    ControllerProvider,
    ServiceProvider,
    MetricsProvider,
):
    name = "Reservation"
    watches: ClassVar = (RESERVATIONS,)
    reads: ClassVar = (Aspect.NODE, Aspect.PODS, RESERVED)
    score_reads: ClassVar = (Aspect.PODS, RESERVED)
    scales_zeros_alike = True

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        shared = view.shared.setdefault(self.name, {})
        self._cache: ReservationCache = shared.setdefault("cache", ReservationCache(view))
        self._failures: dict[str, str] = shared.setdefault("failures", {})
        config = args.pre_allocation_config if args is not None else None
        self._pre_allocator = PreAllocator(self._cache, view, config)
        self._ignored = (frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)) if args else _NONE
        self._cache.show, self._cache.hide = self._show, self._hide
        self._cache.on_opened, self._cache.on_fault = self._announce, self._report_pod

    @property
    def event_handler(self) -> EventHandler:
        return self._cache

    def class_key(self, pod: PodInfo) -> Hashable:
        if stands_for_a_reservation(pod.pod):
            reservation = self._reservation(pod)
            if reservation is None:
                return None
            own = reservation.metadata.uid if reservation.spec.pre_allocation else ""
            return pinned_node(reservation), reservation.spec.allocate_policy, own
        return wish_key(pod.pod), resources_key(pod), is_operating(pod.pod)

    def context_key(self, pod: PodInfo) -> Hashable:
        if not stands_for_a_reservation(pod.pod):
            return self._cache.match(pod)
        booking = self._taking_over(pod) if is_required(pod.pod) else None
        return self._pre_allocator.nodes(booking) if booking is not None else None

    def events_to_register(self) -> frozenset[str]:
        return object_events(RESERVATIONS) | {
            EventKind.NODE_ADD,
            EventKind.NODE_ALLOCATABLE,
            EventKind.NODE_LABEL,
            EventKind.POD_DELETE,
            EventKind.POD_SCALE_DOWN,
        }

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether it is about a Reservation that the pod may take from, or about the node of one: other plugins see
        that node as if the Reservation were somebody else's."""
        if stands_for_a_reservation(pod.pod):
            return True
        about, uids = event.new if event.new is not None else event.old, self._cache.match(pod).uids
        if isinstance(about, Reservation):
            return about.metadata.uid in uids
        name = about.metadata.name if isinstance(about, Node) else about.pod.spec.node_name if about is not None else ""
        return any(self._cache.bookings[uid].node_name == name for uid in uids)

    # PreFilter and Filter.

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        if stands_for_a_reservation(pod.pod):
            reservation = self._reservation(pod)
            if reservation is None:
                raise PluginError(
                    f"reservation {pod.pod.metadata.annotations.get(annotation_keys.RESERVATION_NAME)!r} "
                    "does not exist any more"
                )
            return self._pre_filter_reserve_pod(pod, reservation)
        wish, match = wish_of(pod.pod), self._cache.match(pod)
        if wish.problem:
            return PreFilterResult(skip=True, rejection=Reason(wish.problem, unresolvable=True))
        if wish.affinity is not None and not match.uids:
            return PreFilterResult(skip=True, rejection=NONE_MATCHES)
        operates = is_operating(pod.pod)
        if not operates and (not match.uids or wish.ignored):
            return PreFilterResult(skip=True)
        names = frozenset(self._cache.bookings[uid].node_name for uid in match.uids) if wish.affinity else None
        return PreFilterResult(_Owner(match, wish, operates), node_names=names)

    def _pre_filter_reserve_pod(self, pod: PodInfo, reservation: Reservation) -> PreFilterResult:
        state = _ReservePod(pinned_node(reservation), reservation.spec.allocate_policy)
        booking = state.taking_over = self._taking_over(pod)
        if booking is None:
            return PreFilterResult(state)
        if (refusal := self._pre_allocator.refusal(booking)) is not None:
            return PreFilterResult(skip=True, rejection=refusal)
        if not is_required(pod.pod):
            return PreFilterResult(state)
        names = frozenset(self._pre_allocator.nodes(booking))
        return PreFilterResult(state, node_names=names, rejection=None if names else NO_CANDIDATE)

    def _taking_over(self, pod: PodInfo) -> Booking | None:
        """What the reserve pod stands for, if that may take over running pods."""
        reservation = self._reservation(pod)
        if reservation is None or not reservation.spec.pre_allocation:
            return None
        return self._cache.pending_booking(reservation, pod.pod)

    def transforms(self, pod: PodInfo) -> bool:
        if stands_for_a_reservation(pod.pod):
            booking = self._taking_over(pod)
            return booking is not None and self._pre_allocator.refusal(booking) is None
        return bool(self._cache.match(pod).uids)

    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        """What the pod may take from is thought gone; what others have taken of it stays taken."""
        if stands_for_a_reservation(pod.pod):
            booking = self._taking_over(pod)
            offered = self._pre_allocator.offer(booking, rows.tolist()) if booking is not None else {}
            return {row: Adjustment(removed=tuple(pods)) for row, pods in offered.items()}
        found: dict[int, list[PodInfo]] = {}
        wanted = set(rows.tolist())
        for uid in self._cache.match(pod).uids:
            booking = self._cache.bookings.get(uid)
            if booking is not None and booking.row in wanted:
                found.setdefault(booking.row, []).append(self.view.pods_on[booking.row][uid])
        return {row: Adjustment(removed=tuple(pods)) for row, pods in found.items()}

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        for index, row in enumerate(rows.tolist()):
            code = self.filter_one(pod, state, row)
            if code:
                codes[index] = code
        return codes

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        if isinstance(state, _ReservePod):
            return self._filter_reserve_pod(pod, state, row)
        owner: _Owner = state
        name = self.view.columns.names[row]
        if owner.is_operating and self._conflicts(name, ALIGNED):
            return _CONFLICT
        if owner.wish.ignored:
            return FEASIBLE
        there = self._cache.open_on(name, owner.match)
        reasons = self._why_not(pod, owner.wish, row, there)
        return owner.code_of(reasons) if reasons else FEASIBLE

    def _filter_reserve_pod(self, pod: PodInfo, state: _ReservePod, row: int) -> int:
        name = self.view.columns.names[row]
        if state.pinned and state.pinned != name:
            return _OTHER_NODE
        if self._conflicts(name, state.policy):
            return _CONFLICT
        if state.taking_over is None:
            return FEASIBLE
        reasons = self._pre_allocator.offered(state.taking_over, self._checked(pod), row).reasons
        return state.code_of(reasons) if reasons else FEASIBLE

    def _conflicts(self, node_name: str, policy: str) -> bool:
        """Whether a Reservation of the policy has to stay off the node: one of the default policy shares its node with
        none of another policy, and the other way round."""
        there = self._cache.on_node_named.get(node_name, {}).values()
        return any(each.is_open and (not each.reservation.spec.allocate_policy) != (not policy) for each in there)

    def _why_not(self, pod: PodInfo, wish: Wish, row: int, matched: Sequence[Booking]) -> tuple[Reason, ...]:
        """Why the pod can neither take from one of ``matched``, which are on the row, nor from the node alone."""
        if not matched:
            return (NONE_MATCHES,) if wish.affinity is not None else ()
        capacity = self._capacity(pod, row, matched)
        request, resources = pod.request.amounts, self.view.columns.resources
        checked = self._checked(pod)
        is_named = wish.affinity is not None and bool(wish.affinity.name)
        found: list[Reason] = []
        for booking in matched:
            if wish.affinity is None and not shares_a_resource(booking, request):
                continue
            reasons = capacity.reasons(booking, checked, resources, detailed=is_named)
            if not reasons:
                return ()
            found += [each for each in reasons if not each.text.endswith(BY_NODE) or each not in found]
        if wish.affinity is not None:
            return tuple(found) or (NONE_SUITS,)
        lacking = capacity.lacking(checked, matched, {})
        if not lacking:
            return ()
        return tuple(found) or tuple(Reason(f"Insufficient {resources.name(column)}{BY_NODE}") for column in lacking)

    def _checked(self, pod: PodInfo) -> Columns:
        """What the pod requests without the extended resources that the arguments ``ignoredResources`` and
        ``ignoredResourceGroups`` (the part of a name before the slash) name."""
        resources, groups = self._ignored
        amounts = pod.request.amounts
        if not resources and not groups:
            return amounts
        named = [(column, self.view.columns.resources.name(column)) for column in amounts]
        return {
            column: amounts[column]
            for column, name in named
            if name not in resources and not ("/" in name and name.split("/")[0] in groups)
        }

    def _capacity(self, pod: PodInfo, row: int, matched: Sequence[Booking]) -> Room:
        """The room on the row, whether the pod and the reserve pods of ``matched`` count there just now or not."""
        there, unused = self.view.pods_on[row], self.view.columns.numbers[row].unused
        counted = pod.uid in there
        shown = [each.remaining for each in matched if each.uid in there]
        free = {
            column: unused[column] + counted * amount + sum(each.get(column, 0) for each in shown)
            for column, amount in pod.request.amounts.items()
        }
        return Room(free, matched)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        if code == _OTHER_NODE:
            return (OTHER_NODE,)
        if code == _CONFLICT:
            return (POLICY_CONFLICT,)
        coded: _Coded = state
        return coded.combinations[code - _FIRST_CODE]

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        """What each Reservation on the row, which the pod owns, lacks for it."""
        if not isinstance(state, _Owner):
            return ()
        name, match = self.view.columns.names[row], state.match
        there = self._cache.on_node_named.get(name, {})
        uids = [*match.uids, *(each.uid for each in match.unmatched)]
        refusals = [(there[uid].name, self._refusal(there[uid], pod)) for uid in uids if uid in there]
        return [Lack(f"reservation {reservation}: {why}") for reservation, why in refusals if why]

    # PostFilter.

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        if stands_for_a_reservation(pod.pod):
            return PostFilterResult()
        match, wish = self._cache.match(pod), wish_of(pod.pod)
        if match.is_empty and wish.affinity is None:
            return PostFilterResult()
        nodes = {uid: self._cache.bookings[uid].node_name for uid in match.uids}
        return PostFilterResult(summary(match, wish, nodes, attempt.statuses, self.view.columns.names))

    def result_key(self, pod: PodInfo) -> Hashable:
        return self.name, self.context_key(pod)

    # Score.

    def pre_score(self, pod: PodInfo) -> Any:
        wish, match = wish_of(pod.pod), self._cache.match(pod)
        if stands_for_a_reservation(pod.pod):
            booking = self._taking_over(pod)
            return SKIP_SCORE if booking is None else _ReservePod("", "", booking)
        if wish.ignored or not match.uids:
            return SKIP_SCORE
        return _Owner(match, wish, is_operating(pod.pod))

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        if isinstance(state, _ReservePod):
            return np.array([self.score_one(pod, state, row) for row in rows.tolist()], dtype=np.int64)
        owner: _Owner = state
        scores = np.zeros(rows.shape[0], dtype=np.int64)
        named = {self._cache.bookings[uid].row for uid in owner.match.uids if uid in self._cache.bookings}
        for index, row in enumerate(rows.tolist()):
            if row in named:
                scores[index] = self.score_one(pod, state, row)
        return scores

    def score_one(self, pod: PodInfo, state: Any, row: int) -> int:
        if isinstance(state, _ReservePod):
            taking_over = state.taking_over
            assert taking_over is not None, "the others are not scored"
            found = self._pre_allocator.offered(taking_over, self._checked(pod), row)
            return node_score(taking_over, found.pods)
        owner: _Owner = state
        booking = self._nominated(pod, row, owner.match, owner.wish)
        if booking is None:
            return 0
        if booking.order and booking.uid == self._first_in_order(owner.match):
            return _PREFERRED
        return score(booking, pod.request.amounts)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        return None if isinstance(state, _ReservePod) else default_normalize(raw, feasible, reverse=False)

    def _first_in_order(self, match: Match) -> str:
        """The uid of the Reservation with the smallest order that is not 0; "" if there is none."""
        ordered = [
            (booking.order, uid)
            for uid in match.uids
            if (booking := self._cache.bookings.get(uid)) is not None and booking.order
        ]
        return min(ordered)[1] if ordered else ""

    def _nominated(self, pod: PodInfo, row: int, match: Match, wish: Wish) -> Booking | None:
        """The Reservation that the pod would take from on the row; None if it would take from the node alone."""
        matched = self._cache.open_on(self.view.columns.names[row], match)
        if not matched:
            return None
        capacity, request, resources = (
            self._capacity(pod, row, matched),
            pod.request.amounts,
            self.view.columns.resources,
        )
        fitting = [
            each
            for each in matched
            if (wish.affinity is not None or shares_a_resource(each, request))
            and not capacity.reasons(each, self._checked(pod), resources, detailed=False)
        ]
        if not fitting:
            return None
        ordered = [each for each in fitting if each.order]
        if ordered:
            return min(ordered, key=lambda each: (each.order, each.uid))
        return min(fitting, key=lambda each: (-score(each, request), each.uid))

    # Reserve.

    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Use | TakeOver | Reason | None:
        if stands_for_a_reservation(pod.pod):
            return self._take_over(pod, node.index)
        match, wish = self._cache.match(pod), wish_of(pod.pod)
        if wish.ignored:
            return None
        booking = self._nominated(pod, node.index, match, wish)
        if booking is None:
            return NONE_MATCHES if wish.affinity is not None else None
        return Use(booking.name, booking.uid)

    def _take_over(self, pod: PodInfo, row: int) -> TakeOver | Reason | None:
        booking = self._taking_over(pod)
        if booking is None:
            return None
        found = self._pre_allocator.selected(booking, self._checked(pod), row)
        if found.reasons:
            return found.reasons[0]
        return TakeOver(booking.uid, found.pods) if found.pods else None

    def restore(self, pod: PodInfo, node: NodeReference) -> Use | None:
        record = allocated_record(pod.pod)
        return Use(record.name, record.uid) if record is not None else None

    def on_allocated(self, row: int, pod: PodInfo, allocation: Use | TakeOver) -> None:
        if isinstance(allocation, TakeOver):
            self._cache.claimed.update((each.uid, allocation.uid) for each in allocation.pods)
            return
        self._cache.use(allocation.uid, pod)

    def on_released(self, row: int, pod: PodInfo, allocation: Use | TakeOver) -> None:
        if isinstance(allocation, TakeOver):
            for each in allocation.pods:
                self._cache.claimed.pop(each.uid, None)
            return
        self._cache.unuse(allocation.uid, pod)

    # Binding.

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        recorded = annotation_keys.RESERVATION_ALLOCATED in pod.pod.metadata.annotations
        return recorded or self.view.allocations.of(self.name, pod.uid) is not None

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        """The record on the pod; one of an earlier attempt is taken off."""
        use: Use | None = self.view.allocations.of(self.name, pod.uid)
        text = allocated_annotation(use.name, use.uid) if use is not None else None
        changes.annotations[annotation_keys.RESERVATION_ALLOCATED] = text

    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        """The record on each pod that the Reservation takes over; taken off those that an earlier attempt recorded."""
        found: TakeOver | None = self.view.allocations.of(self.name, reservation.metadata.uid)
        taken = {each.uid: each for each in found.pods} if found is not None else {}
        own = allocated_annotation(reservation.metadata.name, reservation.metadata.uid)
        stale = dict(self._cache.users_of(reservation.metadata.uid))
        for uid, text in (*dict.fromkeys(stale.keys() - taken.keys()).items(), *dict.fromkeys(taken, own).items()):
            metadata = (taken.get(uid) or stale[uid]).pod.metadata
            annotations = {annotation_keys.RESERVATION_ALLOCATED: text}
            patch = {"metadata": {"uid": uid, "annotations": annotations}}
            await writer.patch(PODS, metadata.name, metadata.namespace, patch)

    def binds(self, pod: PodInfo) -> bool:
        return stands_for_a_reservation(pod.pod)

    async def bind(self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter) -> BindOutcome:
        if not stands_for_a_reservation(pod.pod):
            return BindOutcome.SKIPPED
        reservation = reservation_of(self.handle.profile, pod)
        if reservation.status.phase == FAILED:
            raise PluginError("reservation is not active")
        metadata = reservation.metadata
        status = available_status(reservation, node.name, writer.now())
        patch = {"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": status}
        await writer.patch(RESERVATIONS, metadata.name, "", patch, "status")
        note = f"Successfully assigned {metadata.name} to {node.name}"
        self.handle.object_event(RESERVATIONS, reservation, "Normal", "Scheduled", "Binding", note)
        self._failures.pop(metadata.uid, None)
        self._pre_allocator.forget(metadata.uid)
        return BindOutcome.BOUND

    # Failures and controllers.

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        reservation = self._reservation(pod) if stands_for_a_reservation(pod.pod) else None
        if reservation is not None:
            self._failures[reservation.metadata.uid] = message
            self.handle.object_event(RESERVATIONS, reservation, "Warning", "FailedScheduling", "Scheduling", message)
        return False

    def after_failure(self, pod: PodInfo, message: str) -> None:
        if annotation_keys.RESERVATION_AFFINITY in pod.pod.metadata.annotations:
            note = event_note(message)
            if note:
                self.handle.pod_event(pod.pod, "Warning", "FailedScheduling-Reservation", "Scheduling", note)

    def controllers(self, writer: ControllerWriter) -> Sequence[Controller]:
        kept = None if self.args.disable_garbage_collection else timedelta(seconds=self.args.gc_duration_seconds)
        return (ReservationController(self._cache, self.view, writer, self._failures, self._report, kept=kept),)

    def _report(self, reservation: Reservation, fault: str) -> None:
        self.handle.object_event(RESERVATIONS, reservation, "Warning", "InvalidReservation", "Reconcile", fault)

    # Services and metrics.

    def services(self) -> Mapping[str, Service]:
        return {"/reservations/:name/explanation": self._explanation, "/nodeReservations/:nodeName": self._on_node}

    def collectors(self) -> Sequence[Collector]:
        return (ReservationGauges(self._reservations),)

    def _reservations(self) -> list[Reservation]:
        return [each for each in self.view.objects_of(RESERVATIONS).values() if isinstance(each, Reservation)]

    def _explanation(self, parameters: Mapping[str, str]) -> Any:
        found = self.view.objects_of(RESERVATIONS).get(parameters["name"])
        if not isinstance(found, Reservation):
            raise ServiceError(404, f"cannot find reservation {parameters['name']}")
        return explain_reservation(self._cache, self.view.columns.resources, found, self._refusal)

    def _on_node(self, parameters: Mapping[str, str]) -> Any:
        return node_reservations(self._cache, self.view.columns.resources, parameters["nodeName"])

    def _refusal(self, booking: Booking, pod: PodInfo) -> str:
        """Why a pod that owns the Reservation does not take from it as things are; "" if it would."""
        match, wish = self._cache.match(pod), wish_of(pod.pod)
        if wish.problem:
            return wish.problem
        if wish.ignored:
            return "the pod ignores reservations"
        for each in match.unmatched:
            if each.uid == booking.uid:
                return f"the reservation {each.why.value}{' ' + each.detail if each.detail else ''}"
        if booking.uid not in match.uids:
            is_taken = booking.users or booking.is_claimed
            return "the reservation is used up by its owner" if is_taken else "the reservation is not available"
        # Not the row of the booking: while lacks are asked for, what the pod may take from is thought gone.
        row = self.view.columns.row_of.get(booking.node_name)
        if row is None:
            return f"the scheduler does not know of node {booking.node_name}"
        capacity = self._capacity(pod, row, self._cache.open_on(booking.node_name, match))
        if wish.affinity is None and not shares_a_resource(booking, pod.request.amounts):
            return "the pod requests nothing that the reservation holds"
        reasons = capacity.reasons(booking, self._checked(pod), self.view.columns.resources, detailed=True)
        if reasons:
            return ", ".join(each.text for each in reasons)
        nominated = self._nominated(pod, row, match, wish)
        if nominated is not None and nominated is not booking:
            return f"the pod would take from reservation {nominated.name} first"
        return ""

    def _reservation(self, pod: PodInfo) -> Reservation | None:
        """The Reservation that a reserve pod stands for, if it is there still."""
        name = pod.pod.metadata.annotations.get(annotation_keys.RESERVATION_NAME, "")
        found = self.view.objects_of(RESERVATIONS).get(name)
        return found if isinstance(found, Reservation) and found.metadata.uid == pod.uid else None

    def _show(self, pod: Pod) -> None:
        if hasattr(self, "handle"):
            self.handle.set_pseudo_pod(pod)

    def _announce(self, reservation: Reservation) -> None:
        """Owners may use what an operating-mode pod stands for."""
        if hasattr(self, "handle"):
            kind = object_event(RESERVATIONS, reservation, reservation)
            self.handle.announce(ClusterEvent(kind, reservation, reservation))

    def _report_pod(self, pod: Pod, fault: str) -> None:
        if hasattr(self, "handle"):
            self.handle.pod_event(pod, "Warning", "InvalidReservation", "Reconcile", fault)

    def _hide(self, pod: Pod) -> None:
        self._failures.pop(pod.metadata.uid, None)
        self._pre_allocator.forget(pod.metadata.uid)
        if hasattr(self, "handle"):
            self.handle.remove_pseudo_pod(pod)
