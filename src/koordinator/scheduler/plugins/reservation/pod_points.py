"""The extension points that pods pass on their way: PreFilter, Filter, the nomination of a Reservation, Reserve and
PreBind.

Pods that may take from Reservations see the nodes of these without them (row overlays), so that every Filter plugin
evaluates the capacity that is available to them; then this plugin checks that the pod fits by way of a single
Reservation. What a pod takes from a Reservation, and what a Reservation takes over, is reserved and recorded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import PODS, RESERVATIONS
from koordinator.api.reservation import ALIGNED, Reservation
from koordinator.scheduler.engine.allocations import NOTHING, Nothing
from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    ClusterWriter,
    CycleState,
    PodChanges,
    PreBindPlugin,
)
from koordinator.scheduler.engine.columns import Aspect, NodeReference, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import (
    FEASIBLE,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
)
from koordinator.scheduler.engine.framework_hooks import (
    RESERVED,
    FilterTransformer,
    ReservationNominator,
    ReservationPreBindPlugin,
)
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.plugin_forms import ReasonCodes, RowFilterPlugin
from koordinator.scheduler.engine.pod_info import PodInfo, resources_key
from koordinator.scheduler.engine.reservation_points import ReservationPoints
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.reservation.booking import Booking, Match
from koordinator.scheduler.plugins.reservation.cache import NAME, ReservationCache
from koordinator.scheduler.plugins.reservation.matching import (
    ReservationRequirements,
    is_required,
    requirements_key,
    requirements_of,
)
from koordinator.scheduler.plugins.reservation.nomination import NONE_MATCHES, OTHER_NODE, POLICY_CONFLICT, Nominator
from koordinator.scheduler.plugins.reservation.pre_allocation import NO_CANDIDATE, PreAllocator, Selection
from koordinator.scheduler.plugins.reservation.reserve_pod import (
    allocated_annotation,
    allocated_record,
    is_operating,
    pinned_node,
    stands_for_a_reservation,
)

_NONE: Final[tuple[frozenset[str], frozenset[str]]] = frozenset(), frozenset()


@dataclass(slots=True)
class Owner:
    """A class of pods that own Reservations, or must use one. ``is_operating``: they represent one once they run."""

    match: Match
    requirements: ReservationRequirements
    is_operating: bool
    codes: ReasonCodes = field(default_factory=ReasonCodes)


@dataclass(slots=True)
class ReservePod:
    """A class of reserve pods. ``taking_over``: the Reservation, if it may take over running pods."""

    pinned: str
    policy: str
    taking_over: Booking | None = None
    codes: ReasonCodes = field(default_factory=ReasonCodes)


class TakeOver(NamedTuple):
    """The allocation of a reserve pod: the running pods that its Reservation takes over."""

    uid: str
    pods: tuple[PodInfo, ...]


class Use(NamedTuple):
    """The allocation of a pod: the Reservation that it takes from."""

    name: str
    uid: str


class PodPoints(
    PreFilterPlugin,
    Explainer,
    RowFilterPlugin,
    FilterTransformer,
    AllocatorPlugin,
    ReservationNominator,
    PreBindPlugin,
    ReservationPreBindPlugin,
):
    name = NAME
    handle: Handle
    reads: ClassVar = (Aspect.NODE, Aspect.PODS, RESERVED)
    allocates_as_filtered: ClassVar = False

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._cache = view.share(self.name, lambda: ReservationCache(view))
        if args is not None:
            self._cache.index_selectors(args.reservation_selector_index)
        config = args.pre_allocation_config if args is not None else None
        self._pre_allocator = PreAllocator(self._cache, view, config, self)
        ignored = (frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)) if args else _NONE
        self._nominator = Nominator(self._cache, view, ignored, self)

    @cached_property
    def points(self) -> ReservationPoints:
        """The other plugins of the profile that implement points about Reservations."""
        return ReservationPoints(self.handle.profile)

    def _taking_over(self, pod: PodInfo) -> Booking | None:
        """The Reservation of a reserve pod, if it may take over running pods; otherwise None."""
        reservation = self._reservation(pod)
        if reservation is None or not reservation.spec.pre_allocation:
            return None
        return self._cache.pending_booking(reservation, pod.pod)

    def _reservation(self, pod: PodInfo) -> Reservation | None:
        """The Reservation of a reserve pod; None if it is gone."""
        name = pod.pod.metadata.annotations.get(annotation_keys.RESERVATION_NAME, "")
        found = self.view.objects_of(RESERVATIONS).get(name)
        return found if found is not None and found.metadata.uid == pod.uid else None

    # PreFilter and Filter.

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
            return (match, self.points.key(pod)) if match.uids and self.points else match
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
        return any(self._cache.bookings[uid].node_name == event.node_name for uid in uids)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        if stands_for_a_reservation(pod.pod):
            reservation = self._reservation(pod)
            if reservation is None:
                name = pod.pod.metadata.annotations.get(annotation_keys.RESERVATION_NAME, "")
                text = f"annotation {annotation_keys.RESERVE_POD}: there is no reservation {name!r} of the pod's uid"
                return PreFilterResult(skip=True, rejection=Reason(text, unresolvable=True))
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
            return owner.codes.of(POLICY_CONFLICT)
        if owner.requirements.ignored:
            return FEASIBLE
        there = self._cache.open_on(name, owner.match)
        reasons = self._nominator.why_not(pod, owner.requirements, row, there)
        return owner.codes.of(*reasons) if reasons else FEASIBLE

    def _filter_reserve_pod(self, pod: PodInfo, state: ReservePod, row: int) -> int:
        name = self.view.columns.names[row]
        if state.pinned and state.pinned != name:
            return state.codes.of(OTHER_NODE)
        if self._conflicts(name, state.policy):
            return state.codes.of(POLICY_CONFLICT)
        if state.taking_over is None:
            return FEASIBLE
        return state.codes.of(
            *self._pre_allocator.offered(state.taking_over, self._nominator.checked(pod), row).reasons
        )

    def _conflicts(self, node_name: str, policy: str) -> bool:
        """Whether a Reservation of the policy cannot be on the node: Reservations of the default policy and of other
        policies do not share nodes."""
        there = self._cache.on_node_named.of(node_name).values()
        return any(each.is_open and (not each.reservation.spec.allocate_policy) != (not policy) for each in there)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        of_class: Owner | ReservePod = state
        return of_class.codes.reasons(code)

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        """What each Reservation on the row that the pod owns lacks for it."""
        if not isinstance(state, Owner):
            return ()
        name, match = self.view.columns.names[row], state.match
        there = self._cache.on_node_named.of(name)
        uids = [*match.uids, *(each.uid for each in match.unmatched)]
        refusals = [(there[uid].name, self._nominator.refusal(there[uid], pod)) for uid in uids if uid in there]
        return [Lack(f"reservation {reservation}: {why}") for reservation, why in refusals if why]

    # Nomination, Reserve and PreBind.

    def nominated_reservation(self, pod: PodInfo, row: int, *, assumed: bool = False) -> Booking | None:
        match, requirements = self._cache.match(pod), requirements_of(pod)
        if requirements.ignored or not self.points.is_seen(row):
            return None
        return self._nominator.nominated(pod, row, match, requirements, assumed=assumed)

    def nominated_pods(self, pod: PodInfo, row: int) -> tuple[PodInfo, ...]:
        return self._selected(pod, row).pods if self.points.is_seen(row) else ()

    def allocated_reservation(self, pod: PodInfo) -> Booking | None:
        held = self.view.allocations.of(self.name, pod.uid)
        return self._cache.bookings.get(held.uid) if isinstance(held, Use) else None

    def _selected(self, pod: PodInfo, row: int) -> Selection:
        booking = self._taking_over(pod) if stands_for_a_reservation(pod.pod) else None
        if booking is None:
            return Selection()
        return self._pre_allocator.selected(booking, self._nominator.checked(pod), row)

    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Use | TakeOver | Reason | None:
        if stands_for_a_reservation(pod.pod):
            return self._take_over(pod, node.index)
        requirements, match = requirements_of(pod), self._cache.match(pod)
        if requirements.ignored:
            return None
        booking = self._nominator.nominated(pod, node.index, match, requirements, assumed=True) if match.uids else None
        if booking is None:
            return NONE_MATCHES if requirements.affinity is not None else None
        return Use(booking.name, booking.uid)

    def _take_over(self, pod: PodInfo, row: int) -> TakeOver | Reason | None:
        found = self._selected(pod, row)
        if found.reasons:
            return found.reasons[0]
        return TakeOver(pod.uid, found.pods) if found.pods else None

    def nominated_allocation(self, pod: PodInfo, node_name: str) -> Use | None:
        awaited = self._cache.awaited.get(pod.uid)
        if awaited is None or awaited.node_name != node_name:
            return None
        booking = self._cache.bookings.get(awaited.uid)
        return Use(booking.name, booking.uid) if booking is not None and booking.is_open else None

    def restore(self, pod: PodInfo, node: NodeReference) -> Use | Nothing | None:
        """Before a pod is bound its record is written, so that without one it takes from no Reservation. What a reserve
        pod takes over is recorded on those pods."""
        record = allocated_record(pod.pod)
        if record is not None:
            return Use(record.name, record.uid)
        return None if stands_for_a_reservation(pod.pod) else NOTHING

    def on_allocated(self, row: int, pod: PodInfo, allocation: Use | TakeOver) -> None:
        if isinstance(allocation, TakeOver):
            self._cache.claimed.update((each.uid, allocation.uid) for each in allocation.pods)
            return
        self._cache.use(allocation.uid, pod, row)

    def on_released(self, row: int, pod: PodInfo, allocation: Use | TakeOver) -> None:
        if isinstance(allocation, TakeOver):
            for each in allocation.pods:
                self._cache.claimed.pop(each.uid, None)
            return
        self._cache.unuse(allocation.uid, pod)

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        recorded = annotation_keys.RESERVATION_ALLOCATED in pod.pod.metadata.annotations
        return recorded or self.view.allocations.of(self.name, pod.uid) is not None

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        """Write the record on the pod; one of an earlier attempt is removed."""
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
        """Write the record on each pod that the Reservation takes over; remove it from those that an earlier attempt
        recorded."""
        found: TakeOver | None = self.view.allocations.of(self.name, reservation.metadata.uid)
        taken = {each.uid: each for each in found.pods} if found is not None else {}
        own = allocated_annotation(reservation.metadata.name, reservation.metadata.uid)
        stale = self._cache.users_of(reservation.metadata.uid)
        for uid, text in (*dict.fromkeys(stale.keys() - taken.keys()).items(), *dict.fromkeys(taken, own).items()):
            metadata = (taken.get(uid) or stale[uid]).pod.metadata
            annotations = {annotation_keys.RESERVATION_ALLOCATED: text}
            patch = {"metadata": {"uid": uid, "annotations": annotations}}
            await writer.patch(PODS, metadata.name, metadata.namespace, patch)
