"""The allocations of Reservations on a node, and the allocation of a pod that may take from them.

A pod that may take from Reservations sees the node without these; what their owners have taken stays taken. So what is
left of those that it does not take from is counted again, since it is for others. For all other pods a Reservation and
its owners both count, and what the owners have taken of it is restored once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from koordinator.api.kinds import DEVICES, NODE_RESOURCE_TOPOLOGIES
from koordinator.api.reservation import RESTRICTED
from koordinator.model.cpu_allocation.accumulator import NOT_ENOUGH, ExclusivePolicy
from koordinator.model.numa_topology.hints import NUMATopologyHint, NUMATopologyPolicy, mask_of
from koordinator.scheduler.engine.columns import Aspect, NamedAspect
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import (
    RESERVED,
    ReservationNominator,
    ReservationPreAllocationRestorePlugin,
    ReservationRestorePlugin,
)
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.numa_topology import TOPOLOGY_HINTS
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView, ReservationInfo
from koordinator.scheduler.plugins.node_numa_resource.allocation import (
    Amounts,
    FreeCapacity,
    NumaAllocator,
    PodAllocation,
    Request,
    Taken,
    added,
    positive,
    subtracted,
    union,
)
from koordinator.scheduler.plugins.node_numa_resource.node_state import NodeState
from koordinator.scheduler.plugins.node_numa_resource.pod_requirements import (
    PodRequirements,
    RequirementsCache,
)
from koordinator.scheduler.plugins.reservation.matching import ignores_reservations, needs_reservation
from koordinator.scheduler.plugins.unreadable import RecordedAllocator


@dataclass(frozen=True, slots=True)
class Reserved:
    """What one Reservation holds, or a running pod that a Reservation may take over."""

    uid: str
    cpus: int
    """Those that no owner has taken yet."""
    amounts: Amounts
    """The same; negative where owners have more than it holds."""
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    policy: str = ""
    """The Reservation's allocate policy."""
    is_running_pod: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """What is restored on a row in its present state. The Reservations ``matched`` are removed from it."""

    matched: Mapping[str, Reserved] = field(default_factory=dict)
    """By uid."""
    counted_twice: Amounts = field(default_factory=dict)
    """What owners have taken of Reservations that are still there."""


def held_by(
    uid: str, allocation: PodAllocation, owners: Sequence[PodAllocation], policy: str, *, is_running_pod: bool = False
) -> Reserved:
    """What is left of an allocation when ``owners`` have taken from it."""
    taken = union(owner.cpus for owner in owners)
    amounts = subtracted(allocation.amounts, *[owner.amounts for owner in owners])
    return Reserved(uid, allocation.cpus & ~taken, amounts, allocation.exclusive, policy, is_running_pod)


def counted_twice(allocation: PodAllocation, owners: Sequence[PodAllocation]) -> dict[int, dict[str, int]]:
    """The part of an allocation that its owners have taken, too."""
    taken = added(*[owner.amounts for owner in owners])
    return {
        numa_node: {name: min(amount, taken.get(numa_node, {}).get(name, 0)) for name, amount in amounts.items()}
        for numa_node, amounts in allocation.amounts.items()
    }


class Choice:
    """The possible allocations of a pod on a node. ``capacity`` counts all that is taken, and nothing that is reserved.
    ``mask`` of the methods are the NUMA nodes to keep to, None for any."""

    def __init__(
        self, capacity: FreeCapacity, request: Request, restored: Restored, *, needs_reservation: bool = False
    ) -> None:
        """``needs_reservation``: the pod must take from a Reservation."""
        self.capacity = capacity
        self.request = request
        self.restored = restored
        self.needs_reservation = needs_reservation
        self._allocators: dict[str, NumaAllocator] = {}
        self._all: NumaAllocator | None = None

    def from_any(self, mask: int | None, *, ignoring: bool = False) -> PodAllocation | tuple[Reason, ...]:
        """From one of the Reservations, or else from the node. ``ignoring``: from all of them and the node alike."""
        if ignoring and self.restored.matched:
            return self.unreserved.allocate(mask)
        found = self.from_reservations(list(self.restored.matched), mask)
        return self.from_node(mask) if found is None else found

    def fits(self, mask: int | None, *, ignoring: bool = False) -> bool:
        """Whether ``from_any`` would succeed."""
        if not self.restored.matched:
            return self._allocator("").fits(mask)
        return isinstance(self.from_any(mask, ignoring=ignoring), PodAllocation)

    def from_reservations(self, uids: Sequence[str], mask: int | None) -> PodAllocation | tuple[Reason, ...] | None:
        """From the first of these that suffices; None if none does, and the pod need not use one."""
        reasons: list[Reason] = []
        matched = [self.restored.matched[uid] for uid in sorted(uids) if uid in self.restored.matched]
        for each in matched:
            found = self._from_one(each, mask)
            if isinstance(found, PodAllocation):
                return found
            reasons += found
        if matched and self.needs_reservation:
            return tuple([Reason(f"Reservation(s) {reason.text}") for reason in reasons])
        return None

    def from_node(self, mask: int | None) -> PodAllocation | tuple[Reason, ...]:
        """From what is not reserved."""
        return self._allocator("").allocate(mask)

    @property
    def unreserved(self) -> NumaAllocator:
        """An allocator for all Reservations and the node together."""
        if self._all is None:
            preferred = union(each.cpus for each in self.restored.matched.values())
            self._all = NumaAllocator(replace(self.shared_capacity, preferred=preferred), self.request)
        return self._all

    @property
    def shared_capacity(self) -> FreeCapacity:
        """The free capacity with what its Reservations have left."""
        if not self.restored.counted_twice:
            return self.capacity
        taken = self.capacity.taken
        return replace(
            self.capacity, taken=replace(taken, amounts=subtracted(taken.amounts, self.restored.counted_twice))
        )

    def with_restored(self, restored: Restored) -> Choice:
        """The same with other Reservations."""
        return Choice(self.capacity, self.request, restored, needs_reservation=self.needs_reservation)

    def _from_one(self, reserved: Reserved, mask: int | None) -> PodAllocation | tuple[Reason, ...]:
        found = self._allocator(reserved.uid).allocate(mask)
        if reserved.policy != RESTRICTED or not isinstance(found, PodAllocation):
            return found
        if reserved.is_running_pod:
            # It is taken over as a whole.
            return found if not reserved.cpus & ~found.cpus else (Reason(NOT_ENOUGH),)
        if self.request.cpus > reserved.cpus.bit_count():
            return (Reason(NOT_ENOUGH),)
        capacity = self._kept_for_others(reserved.uid)
        limits = positive(reserved.amounts) if reserved.amounts else None
        limited = replace(capacity, usable_cpus=capacity.usable_cpus & reserved.cpus, limits=limits)
        return NumaAllocator(limited, self.request).allocate(mask)

    def _allocator(self, uid: str) -> NumaAllocator:
        """An allocator of the capacity for a pod that takes from this Reservation alone; "" for the node."""
        allocator = self._allocators.get(uid)
        if allocator is None:
            allocator = self._allocators[uid] = NumaAllocator(self._kept_for_others(uid), self.request)
        return allocator

    def _kept_for_others(self, uid: str) -> FreeCapacity:
        others = [each for each in self.restored.matched.values() if each.uid != uid]
        own = self.restored.matched.get(uid)
        capacity = self.shared_capacity
        if not others and own is None:
            return capacity
        taken, exclusive = capacity.taken, dict(capacity.taken.exclusive)
        for each in others:
            if each.exclusive:
                exclusive[each.exclusive] = exclusive.get(each.exclusive, 0) | each.cpus
        kept = Taken(
            taken.cpus | union(each.cpus for each in others),
            added(taken.amounts, *[positive(each.amounts) for each in others]),
            exclusive,
        )
        return replace(capacity, taken=kept, preferred=own.cpus if own is not None else 0)


NAME: Final = "NodeNUMAResource"
TOPOLOGY: Final = NamedAspect.of_objects(NODE_RESOURCE_TOPOLOGIES)
READS: Final = (Aspect.NODE, Aspect.PODS, TOPOLOGY, TOPOLOGY_HINTS, RESERVED, NamedAspect.of_objects(DEVICES))
_OTHER_POLICY: Final = Reason("node(s) NUMA Topology policy not match", unresolvable=True)
_OUT_OF_SCOPE: Final = Reason("pod has a nominated reservation but cannot be allocated within its NUMA scope")
_NO_RESERVATION: Final = Reason("no nominated reservation")
_NO_RUNNING_POD: Final = Reason("no nominated pre-allocatable pod")
UNKNOWN_NODE: Final = NodeState()
"""Stands for the rows that are omitted; to be read only."""
_MOST_ALLOCATED: Final = "MostAllocated"


class NUMAPart(
    ReservationRestorePlugin, ReservationPreAllocationRestorePlugin, RecordedAllocator[PodAllocation, NodeState]
):
    """The state of the plugin."""

    name: ClassVar[str] = NAME
    handle: Handle

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._requirements = RequirementsCache(self.name, args.default_cpu_bind_policy)
        self._packs = args.numa_scoring_strategy.type == _MOST_ALLOCATED

    def _merged_policy(self, requirements: PodRequirements, node: NodeState) -> NUMATopologyPolicy | Reason:
        """The pod's policy, or else the node's; if both are set, they must be equal."""
        if requirements.numa and node.rules.numa and requirements.numa is not node.rules.numa:
            return _OTHER_POLICY
        return requirements.numa or node.rules.numa

    def _choice(self, pod: PodInfo, requirements: PodRequirements, row: int) -> Choice:
        """The possible allocations of the pod on the row in its present, possibly adjusted, state."""
        node = self.nodes.get(row, UNKNOWN_NODE)
        request = node.request(requirements, self._packs)
        capacity = FreeCapacity(node.cpus, node.usable_cpus, node.rules.zones, node.taken)
        return Choice(capacity, request, self._restored(row), needs_reservation=needs_reservation(pod.pod))

    # Reservations.

    def restore_reservations(
        self, matched: Sequence[ReservationInfo], unmatched: Sequence[ReservationInfo], row: int
    ) -> Restored:
        found: dict[str, Reserved] = {}
        for each in matched:
            held = self.held(each.uid)
            if held is not None:
                policy = each.reservation.spec.allocate_policy
                found[each.uid] = held_by(each.uid, held, self._owners(each, row), policy)
        return Restored(found, self._counted_twice(unmatched, row))

    def restore_pre_allocatable(self, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int) -> Restored:
        policy = reservation.reservation.spec.allocate_policy
        found = {
            pod.uid: held_by(pod.uid, held, (), policy, is_running_pod=True)
            for pod in pods
            if (held := self.held(pod.uid)) is not None
        }
        return Restored(found, self._counted_twice(self.view.reservations_on(row), row))

    def _counted_twice(self, reservations: Sequence[ReservationInfo], row: int) -> dict[int, dict[str, int]]:
        held = [(each, self.held(each.uid)) for each in reservations]
        return added(*[counted_twice(all_, self._owners(each, row)) for each, all_ in held if all_ is not None])

    def _owners(self, reservation: ReservationInfo, row: int) -> list[PodAllocation]:
        """The allocations of the pods that take from it and count on the row at present."""
        there = self.view.pods_on[row]
        held = [self.held(uid) for uid in reservation.users if uid in there]
        return [each for each in held if each is not None]

    def _restored(self, row: int) -> Restored:
        taking_over: Restored | None = self.restored_pre_allocatable(row)
        found: Restored | None = taking_over if taking_over is not None else self.restored(row)
        return found if found is not None else Restored()

    def _granted(
        self, pod: PodInfo, row: int, choice: Choice, affinity: NUMATopologyHint | None, *, assumed: bool
    ) -> PodAllocation | tuple[Reason, ...]:
        """The pod's allocation: from the Reservation that is nominated for it, or else from the node. ``assumed``: the
        pod counts on the row already."""
        mask = affinity.mask if affinity is not None else None
        requirements = self._requirements.of(pod)
        if requirements.designated is not None:
            return _designated(choice, requirements.designated)
        if ignores_reservations(pod.pod) or not choice.restored.matched:
            return choice.from_any(mask, ignoring=True)
        taking_over = self.restored_pre_allocatable(row) is not None
        uids = self._nominated(pod, row, taking_over=taking_over, assumed=assumed)
        if not uids and choice.needs_reservation:
            return (_NO_RUNNING_POD if taking_over else _NO_RESERVATION,)
        known = [choice.restored.matched[uid] for uid in uids if uid in choice.restored.matched]
        if not known:
            return choice.from_node(mask)
        one = known[0] if len(known) == 1 else _together(known)
        rest = {uid: each for uid, each in choice.restored.matched.items() if uid not in uids}
        chosen = choice.with_restored(replace(choice.restored, matched={**rest, one.uid: one}))
        found = chosen.from_reservations([one.uid], mask)
        return (_OUT_OF_SCOPE,) if found is None else found

    def _nominated(self, pod: PodInfo, row: int, *, taking_over: bool, assumed: bool) -> list[str]:
        nominator = self.handle.plugin(ReservationNominator)
        if nominator is None:
            return []
        if taking_over:
            return [each.uid for each in nominator.nominated_pods(pod, row)]
        reservation = nominator.nominated_reservation(pod, row, assumed=assumed)
        return [reservation.uid] if reservation is not None else []


def _together(pods: Sequence[Reserved]) -> Reserved:
    """Several running pods that one Reservation takes over."""
    return replace(
        pods[0],
        cpus=union(each.cpus for each in pods),
        amounts=added(*[each.amounts for each in pods]),
    )


def _designated(choice: Choice, designated: PodAllocation) -> PodAllocation | tuple[Reason, ...]:
    """Exactly the allocation that another scheduler has designated, if it is free."""
    wanted, allocator = designated.amounts, choice.unreserved
    limits = _smaller(allocator.available, wanted) if wanted else None
    capacity = choice.shared_capacity
    capacity = replace(capacity, usable_cpus=capacity.usable_cpus & designated.cpus, limits=limits)
    found = NumaAllocator(capacity, choice.request).allocate(mask_of(wanted) if wanted else None)
    if isinstance(found, PodAllocation) and found.cpus != designated.cpus:
        return (Reason(NOT_ENOUGH),)
    return found


def _smaller(available: dict[int, dict[str, int]], wanted: dict[int, dict[str, int]]) -> dict[int, dict[str, int]]:
    return {
        node: {name: min(amount, available.get(node, {}).get(name, 0)) for name, amount in amounts.items()}
        for node, amounts in wanted.items()
    }
