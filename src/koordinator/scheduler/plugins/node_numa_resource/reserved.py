"""The allocations of Reservations on a node, and the allocation of a pod that may take from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

from koordinator.api.kinds import DEVICES, NODE_RESOURCE_TOPOLOGIES
from koordinator.api.reservation import RESTRICTED
from koordinator.model.cpu_allocation.accumulator import NOT_ENOUGH, ExclusivePolicy
from koordinator.model.numa_topology.hints import NUMATopologyHint, NUMATopologyPolicy, mask_of
from koordinator.scheduler.engine.columns import Aspect, NamedAspect
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import (
    RESERVED,
)
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.numa_topology import TOPOLOGY_HINTS
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
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
from koordinator.scheduler.plugins.recorded_allocator import RecordedAllocator, Restored
from koordinator.scheduler.plugins.reservation.matching import ignores_reservations, needs_reservation


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


RestoredOnRow = Restored[Reserved, Amounts]
NOTHING_RESTORED: Final[RestoredOnRow] = Restored({}, {})


@dataclass(eq=False)
class Choice:
    """The possible allocations of a pod on a node. ``capacity`` counts all that is taken, and nothing that is reserved.
    ``mask`` of the methods are the NUMA nodes to keep to, None for any."""

    capacity: FreeCapacity
    request: Request
    restored: RestoredOnRow
    needs_reservation: bool = False
    """Whether the pod must take from a Reservation."""
    _allocators: dict[str, NumaAllocator] = field(default_factory=dict, init=False)

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

    @cached_property
    def unreserved(self) -> NumaAllocator:
        """An allocator for all Reservations and the node together."""
        preferred = union(each.cpus for each in self.restored.matched.values())
        return NumaAllocator(replace(self.shared_capacity, preferred=preferred), self.request)

    @property
    def shared_capacity(self) -> FreeCapacity:
        """The free capacity with what its Reservations have left."""
        if not self.restored.counted_twice:
            return self.capacity
        taken = self.capacity.taken
        amounts = subtracted(taken.amounts, self.restored.counted_twice)
        return replace(self.capacity, taken=replace(taken, amounts=amounts))

    def _from_one(self, reserved: Reserved, mask: int | None) -> PodAllocation | tuple[Reason, ...]:
        found = self._allocator(reserved.uid).allocate(mask)
        if reserved.policy != RESTRICTED or not isinstance(found, PodAllocation):
            return found
        if self.restored.takes_over:
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


class NUMAPart(RecordedAllocator[PodAllocation, NodeState, Reserved, Amounts]):
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
        restored = self.seen(row) or NOTHING_RESTORED
        return Choice(capacity, request, restored, needs_reservation(pod.pod))

    # Reservations.

    def reserved(self, uid: str, held: PodAllocation, owners: Sequence[PodAllocation], policy: str) -> Reserved:
        taken = union(owner.cpus for owner in owners)
        amounts = subtracted(held.amounts, *[owner.amounts for owner in owners])
        return Reserved(uid, held.cpus & ~taken, amounts, held.exclusive, policy)

    def counted_twice(self, reservations: Sequence[tuple[PodAllocation, Sequence[PodAllocation]]]) -> Amounts:
        found: list[Amounts] = []
        for held, owners in reservations:
            taken = added(*[owner.amounts for owner in owners])
            found.append(_smaller(taken, held.amounts))
        return added(*found)

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
        uids = self.nominated(pod, row, assumed=assumed)
        if not uids and choice.needs_reservation:
            return (_NO_RUNNING_POD if choice.restored.takes_over else _NO_RESERVATION,)
        known = [choice.restored.matched[uid] for uid in uids if uid in choice.restored.matched]
        if not known:
            return choice.from_node(mask)
        one = known[0] if len(known) == 1 else _together(known)
        rest = {uid: each for uid, each in choice.restored.matched.items() if uid not in uids}
        chosen = replace(choice, restored=replace(choice.restored, matched={**rest, one.uid: one}))
        found = chosen.from_reservations([one.uid], mask)
        return (_OUT_OF_SCOPE,) if found is None else found


def _together(pods: Sequence[Reserved]) -> Reserved:
    """Several running pods that one Reservation takes over."""
    amounts = added(*[each.amounts for each in pods])
    return replace(pods[0], cpus=union(each.cpus for each in pods), amounts=amounts)


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


def _smaller(available: Amounts, wanted: Amounts) -> dict[int, dict[str, int]]:
    """``wanted``, at most what is available."""
    return {
        node: {name: min(amount, available.get(node, {}).get(name, 0)) for name, amount in amounts.items()}
        for node, amounts in wanted.items()
    }
