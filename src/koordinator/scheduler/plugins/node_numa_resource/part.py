"""The state that the parts of the plugin share: the nodes, and the allocations that a pod may get on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from koordinator.api.kinds import DEVICES, NODE_RESOURCE_TOPOLOGIES
from koordinator.model.cpu_allocation.accumulator import NOT_ENOUGH
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
    FreeCapacity,
    NumaAllocator,
    PodAllocation,
    added,
    union,
)
from koordinator.scheduler.plugins.node_numa_resource.node_state import NodeState
from koordinator.scheduler.plugins.node_numa_resource.pod_requirements import (
    PodRequirements,
    RequirementsCache,
)
from koordinator.scheduler.plugins.node_numa_resource.reserved import (
    Choice,
    Reserved,
    Restored,
    counted_twice,
    held_by,
)
from koordinator.scheduler.plugins.reservation.matching import ignores_reservations, needs_reservation

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


class NUMAPart(ReservationRestorePlugin, ReservationPreAllocationRestorePlugin):
    """The state of the plugin."""

    name: ClassVar[str] = NAME
    handle: Handle

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._requirements = RequirementsCache(self.name, args.default_cpu_bind_policy)
        self._nodes: dict[int, NodeState] = {}
        """By row; rows without relevant state are omitted."""
        self._packs = args.numa_scoring_strategy.type == _MOST_ALLOCATED

    def _merged_policy(self, requirements: PodRequirements, node: NodeState) -> NUMATopologyPolicy | Reason:
        """The pod's policy, or else the node's; if both are set, they must be equal."""
        if requirements.numa and node.rules.numa and requirements.numa is not node.rules.numa:
            return _OTHER_POLICY
        return requirements.numa or node.rules.numa

    def _choice(self, pod: PodInfo, requirements: PodRequirements, row: int) -> Choice:
        """The possible allocations of the pod on the row in its present, possibly adjusted, state."""
        node = self._nodes.get(row, UNKNOWN_NODE)
        request = node.request(requirements, self._packs)
        capacity = FreeCapacity(node.cpus, node.usable_cpus, node.rules.zones, node.taken)
        return Choice(capacity, request, self._restored(row), needs_reservation=needs_reservation(pod.pod))

    # Reservations.

    def restore_reservations(
        self, matched: Sequence[ReservationInfo], unmatched: Sequence[ReservationInfo], row: int
    ) -> Restored:
        found: dict[str, Reserved] = {}
        for each in matched:
            held = self._held(each.uid)
            if held is not None:
                policy = each.reservation.spec.allocate_policy
                found[each.uid] = held_by(each.uid, held, self._owners(each, row), policy)
        return Restored(found, self._counted_twice(unmatched, row))

    def restore_pre_allocatable(self, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int) -> Restored:
        policy = reservation.reservation.spec.allocate_policy
        found = {
            pod.uid: held_by(pod.uid, held, (), policy, is_running_pod=True)
            for pod in pods
            if (held := self._held(pod.uid)) is not None
        }
        return Restored(found, self._counted_twice(self.view.reservations_on(row), row))

    def _counted_twice(self, reservations: Sequence[ReservationInfo], row: int) -> dict[int, dict[str, int]]:
        held = [(each, self._held(each.uid)) for each in reservations]
        return added(*[counted_twice(all_, self._owners(each, row)) for each, all_ in held if all_ is not None])

    def _held(self, uid: str) -> PodAllocation | None:
        return self.view.allocations.of(self.name, uid)

    def _owners(self, reservation: ReservationInfo, row: int) -> list[PodAllocation]:
        """The allocations of the pods that take from it and count on the row at present."""
        there = self.view.pods_on[row]
        held = [self._held(uid) for uid in reservation.users if uid in there]
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
