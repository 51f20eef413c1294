"""Filters nodes by their Reservations, and adjusts how a pod sees the nodes of the Reservations that it owns.

Pods that may take from Reservations see the nodes of these without them (row overlays), so that every Filter plugin
evaluates the capacity that is available to them; then this plugin checks that the pod fits by way of a single
Reservation.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.node import Node
from koordinator.api.reservation import ALIGNED, Reservation
from koordinator.scheduler.engine.columns import Aspect, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import FEASIBLE, PluginError, PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.framework_hooks import RESERVED, FilterTransformer
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.plugin_forms import RowFilterPlugin
from koordinator.scheduler.engine.pod_info import PodInfo, resources_key
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.reservation.booking import Booking, Match
from koordinator.scheduler.plugins.reservation.fitting import NONE_MATCHES, OTHER_NODE, POLICY_CONFLICT
from koordinator.scheduler.plugins.reservation.matching import (
    ReservationRequirements,
    requirements_key,
    requirements_of,
)
from koordinator.scheduler.plugins.reservation.operating_pod import is_operating
from koordinator.scheduler.plugins.reservation.part import ReservationPart
from koordinator.scheduler.plugins.reservation.pre_allocation import NO_CANDIDATE, is_required
from koordinator.scheduler.plugins.reservation.reserve_pod import pinned_node, stands_for_a_reservation

_OTHER_NODE: Final = 1
_CONFLICT: Final = 2
_FIRST_CODE: Final = 3
"""Codes below are the same for all classes."""


@dataclass(slots=True, kw_only=True)
class Coded:
    """Maps the reasons of rejections to codes, for one class of pods."""

    combinations: list[tuple[Reason, ...]] = field(default_factory=list)
    """The reasons of the codes from _FIRST_CODE on."""

    def code_of(self, reasons: tuple[Reason, ...]) -> int:
        if reasons not in self.combinations:
            self.combinations.append(reasons)
        return self.combinations.index(reasons) + _FIRST_CODE


@dataclass(slots=True)
class Owner(Coded):
    """A class of pods that own Reservations, or must use one. ``is_operating``: they represent one once they run."""

    match: Match
    requirements: ReservationRequirements
    is_operating: bool


@dataclass(slots=True)
class ReservePod(Coded):
    """A class of reserve pods. ``taking_over``: the Reservation, if it may take over running pods."""

    pinned: str
    policy: str
    taking_over: Booking | None = None


class ReservationFilter(PreFilterPlugin, Explainer, RowFilterPlugin, FilterTransformer, ReservationPart):
    """PreFilter, BeforeFilter and Filter."""

    reads: ClassVar = (Aspect.NODE, Aspect.PODS, RESERVED)

    def class_key(self, pod: PodInfo) -> Hashable:
        if stands_for_a_reservation(pod.pod):
            reservation = self._reservation(pod)
            if reservation is None:
                return None
            own = reservation.metadata.uid if reservation.spec.pre_allocation else ""
            return pinned_node(reservation), reservation.spec.allocate_policy, own
        return requirements_key(pod.pod), resources_key(pod), is_operating(pod.pod)

    def context_key(self, pod: PodInfo) -> Hashable:
        if not stands_for_a_reservation(pod.pod):
            match = self._cache.match(pod)
            return (match, self._points.key(pod)) if match.uids and self._points else match
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
        """Whether the event is about a Reservation that the pod may take from, or about the node of one: other plugins
        see that node as if the Reservation were another owner's."""
        if stands_for_a_reservation(pod.pod):
            return True
        about, uids = event.new if event.new is not None else event.old, self._cache.match(pod).uids
        if isinstance(about, Reservation):
            return about.metadata.uid in uids
        name = about.metadata.name if isinstance(about, Node) else about.pod.spec.node_name if about is not None else ""
        return any(self._cache.bookings[uid].node_name == name for uid in uids)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        if stands_for_a_reservation(pod.pod):
            reservation = self._reservation(pod)
            if reservation is None:
                raise PluginError(
                    f"reservation {pod.pod.metadata.annotations.get(annotation_keys.RESERVATION_NAME)!r} "
                    "does not exist any more"
                )
            return self._pre_filter_reserve_pod(pod, reservation)
        requirements, match = requirements_of(pod), self._cache.match(pod)
        if requirements.problem:
            return PreFilterResult(skip=True, rejection=Reason(requirements.problem, unresolvable=True))
        if requirements.affinity is not None and not match.uids:
            return PreFilterResult(skip=True, rejection=NONE_MATCHES)
        operates = is_operating(pod.pod)
        if not match.uids or (requirements.ignored and not operates):
            return PreFilterResult(skip=True)
        names = frozenset(self._cache.bookings[uid].node_name for uid in match.uids) if requirements.affinity else None
        return PreFilterResult(Owner(match, requirements, operates), node_names=names)

    def _pre_filter_reserve_pod(self, pod: PodInfo, reservation: Reservation) -> PreFilterResult:
        state = ReservePod(pinned_node(reservation), reservation.spec.allocate_policy)
        booking = state.taking_over = self._taking_over(pod)
        if booking is None:
            return PreFilterResult(state)
        if (refusal := self._pre_allocator.refusal(booking)) is not None:
            return PreFilterResult(skip=True, rejection=refusal)
        if not is_required(pod.pod):
            return PreFilterResult(state)
        names = frozenset(self._pre_allocator.nodes(booking))
        return PreFilterResult(state, node_names=names, rejection=None if names else NO_CANDIDATE)

    def transforms(self, pod: PodInfo) -> bool:
        if stands_for_a_reservation(pod.pod):
            booking = self._taking_over(pod)
            return booking is not None and self._pre_allocator.refusal(booking) is None
        return bool(self._cache.match(pod).uids)

    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        """On each row, the Reservations that the pod may take from, or the pods that it may take over, count as
        removed."""
        if stands_for_a_reservation(pod.pod):
            booking = self._taking_over(pod)
            return self._pre_allocator.adjustments(booking, rows.tolist()) if booking is not None else {}
        return self._nominator.adjustments(pod, rows.tolist())

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        if isinstance(state, ReservePod):
            return self._filter_reserve_pod(pod, state, row)
        owner: Owner = state
        name = self.view.columns.names[row]
        if owner.is_operating and self._conflicts(name, ALIGNED):
            return _CONFLICT
        if owner.requirements.ignored:
            return FEASIBLE
        there = self._cache.open_on(name, owner.match)
        reasons = self._nominator.why_not(pod, owner.requirements, row, there)
        return owner.code_of(reasons) if reasons else FEASIBLE

    def _filter_reserve_pod(self, pod: PodInfo, state: ReservePod, row: int) -> int:
        name = self.view.columns.names[row]
        if state.pinned and state.pinned != name:
            return _OTHER_NODE
        if self._conflicts(name, state.policy):
            return _CONFLICT
        if state.taking_over is None:
            return FEASIBLE
        reasons = self._pre_allocator.offered(state.taking_over, self._nominator.checked(pod), row).reasons
        return state.code_of(reasons) if reasons else FEASIBLE

    def _conflicts(self, node_name: str, policy: str) -> bool:
        """Whether a Reservation of the policy cannot be on the node: Reservations of the default policy and of other
        policies do not share nodes."""
        there = self._cache.on_node_named.get(node_name, {}).values()
        return any(each.is_open and (not each.reservation.spec.allocate_policy) != (not policy) for each in there)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        if code == _OTHER_NODE:
            return (OTHER_NODE,)
        if code == _CONFLICT:
            return (POLICY_CONFLICT,)
        coded: Coded = state
        return coded.combinations[code - _FIRST_CODE]

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        """What each Reservation on the row that the pod owns lacks for it."""
        if not isinstance(state, Owner):
            return ()
        name, match = self.view.columns.names[row], state.match
        there = self._cache.on_node_named.get(name, {})
        uids = [*match.uids, *(each.uid for each in match.unmatched)]
        refusals = [(there[uid].name, self._nominator.refusal(there[uid], pod)) for uid in uids if uid in there]
        return [Lack(f"reservation {reservation}: {why}") for reservation, why in refusals if why]
