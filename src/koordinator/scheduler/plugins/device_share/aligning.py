"""Topology hints: the NUMA nodes whose devices would suffice for a pod."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from koordinator.api.device import GPU
from koordinator.model.numa_topology.hints import Hints, NUMATopologyHint, mask_of, masks_of, numa_nodes_of
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.numa_topology import NUMATopologyHintProvider
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.device_share.allocation import (
    DeviceAllocations,
    of_reservation,
)
from koordinator.scheduler.plugins.device_share.allocator import instances
from koordinator.scheduler.plugins.device_share.demand import DeviceDemand
from koordinator.scheduler.plugins.device_share.node_devices import NodeDevices
from koordinator.scheduler.plugins.device_share.part import (
    DeviceSharePart,
    of_affinity,
)
from koordinator.scheduler.plugins.reservation.matching import needs_reservation

TOO_FEW = Reason("Insufficient NUMA Scoped Devices", unresolvable=True)
NOT_KNOWN = Reason("Designated Allocation Lack NUMA Node ID")
_SCORE = 500
"""The score of NUMA nodes with the best GPUs: higher than that of any CPUs."""


class DeviceAlignment(NUMATopologyHintProvider, DeviceSharePart):
    """The plugin's part in the NUMA topology manager. A pod's devices depend on the Reservation that it takes from,
    which is not known here: the hints hold if any of them suffices."""

    def topology_key(self, pod: PodInfo) -> Hashable:
        return self.own_key(pod) if self._aligns else None

    def get_pod_topology_hints(self, pod: PodInfo, row: int) -> Hints | Reason:
        demand = self.demand_of(pod)
        if not self._aligns or not isinstance(demand, DeviceDemand) or row not in self.nodes:
            return {}
        node = self.nodes[row]
        if demand.designated:
            return _designated(demand, node)
        numa_nodes = node.numa_nodes
        found = {mask: self._in(pod, demand, row, mask) for mask in masks_of(numa_nodes)}
        if not found:
            return {}
        best = found[mask_of(numa_nodes)]
        if isinstance(best, Reason):
            return best
        feasible = {mask: each for mask, each in found.items() if not isinstance(each, Reason)}
        smallest = min(mask.bit_count() for mask in feasible)
        hints = [
            NUMATopologyHint(mask, mask.bit_count() == smallest, score=_SCORE if _gpus(each) == _gpus(best) else 0)
            for mask, each in feasible.items()
        ]
        wanted = instances(demand, node, leaves_secondary=True)
        return {} if isinstance(wanted, Reason) else dict.fromkeys(wanted, hints)

    def _in(self, pod: PodInfo, demand: DeviceDemand, row: int, mask: int) -> DeviceAllocations | Reason:
        """The pod's devices from these NUMA nodes."""
        node, numa_nodes = self.nodes[row], frozenset(numa_nodes_of(mask))
        wanted = instances(demand, node, leaves_secondary=True)
        if isinstance(wanted, Reason):
            return wanted
        for device_type, each in wanted.items():
            there = node.count_in(device_type, numa_nodes)
            if there and there < each.count:
                return TOO_FEW
        return self._from_any(pod, demand, row, numa_nodes)

    def _from_any(
        self, pod: PodInfo, demand: DeviceDemand, row: int, numa_nodes: frozenset[int] | None
    ) -> DeviceAllocations | Reason:
        """The pod's devices from one of its Reservations, or, if it need not use one, from the node."""
        seen, refusals = self.seen(row), list[Reason]()
        for uid in sorted(seen.matched) if seen is not None else ():
            found = self.found_in(pod, demand, row, (uid,), numa_nodes, leaves_secondary=True)
            if not isinstance(found, Reason):
                return found
            refusals.append(of_reservation(found))
        if refusals and needs_reservation(pod.pod):
            return refusals[0]
        return self.found_in(pod, demand, row, (), numa_nodes, leaves_secondary=True)

    def filter_affinity(self, pod: PodInfo, affinity: NUMATopologyHint, row: int) -> Sequence[Reason]:
        demand = self.demand_of(pod)
        if not self._aligns or not isinstance(demand, DeviceDemand) or row not in self.nodes:
            return ()
        found = self._from_any(pod, demand, row, of_affinity(affinity))
        return (found,) if isinstance(found, Reason) else ()


def _designated(demand: DeviceDemand, node: NodeDevices) -> Hints | Reason:
    """One hint: the NUMA nodes of the devices that another scheduler has designated."""
    numa_nodes: set[int] = set()
    for device_type, devices in demand.designated:
        for device in devices:
            numa_node = node.numa_node_of(device_type, device.minor)
            if numa_node is None:
                return NOT_KNOWN
            numa_nodes.add(numa_node)
    hint = NUMATopologyHint(mask_of(numa_nodes), preferred=True, score=_SCORE)
    return {device_type: [hint] for device_type, _ in demand.designated}


def _gpus(found: DeviceAllocations) -> frozenset[int]:
    return frozenset(each.minor for each in dict(found).get(GPU, ()))
