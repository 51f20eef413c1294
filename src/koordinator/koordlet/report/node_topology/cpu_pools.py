"""Which CPUs are left for pods that have none of their own: the share pools of LS and of BE pods; pure.

A pod with CPUs of its own names them in the annotation scheduling.koordinator.sh/resource-status; kubelet's static CPU
manager has its own such pods, in its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.qos import QoSClass
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cpu_topology import CPUTopology


@dataclass(frozen=True, slots=True)
class CPUPool:
    """The CPUs of one NUMA node that pods share."""

    socket: int
    numa_node: int
    cpus: frozenset[int]

    def document(self) -> dict[str, Any]:
        """As the annotations node.koordinator.sh/…cpu-shared-pools have it."""
        members: dict[str, Any] = {"socket": self.socket, "node": self.numa_node}
        return members | ({"cpuset": format_cpu_list(self.cpus)} if self.cpus else {})

    def without(self, cpus: frozenset[int]) -> CPUPool:
        """A pool that has become empty is still there."""
        return CPUPool(self.socket, self.numa_node, self.cpus - cpus)


@dataclass(frozen=True, slots=True)
class CPUAllocation:
    """The CPUs that kubelet has given to a pod; the pod's name is empty if kubelet does not list the pod any more."""

    namespace: str
    name: str
    uid: str
    cpus: frozenset[int]

    def document(self) -> dict[str, Any]:
        """As the annotation node.koordinator.sh/pod-cpu-allocs has it."""
        members = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        known = {name: value for name, value in members.items() if value}
        return known | {"cpuset": format_cpu_list(self.cpus), "managedByKubelet": True}


@dataclass(frozen=True, slots=True)
class CPUShares:
    """Who has which CPUs. Pools are by socket and NUMA node, allocations by UID."""

    ls_pools: tuple[CPUPool, ...]
    be_pools: tuple[CPUPool, ...]
    allocations: tuple[CPUAllocation, ...] = ()


def share_cpus(
    topology: CPUTopology, pods: Sequence[NodePod], of_kubelet: Mapping[str, frozenset[int]], kept: frozenset[int]
) -> CPUShares:
    """Divide the CPUs.

    ``of_kubelet`` is what kubelet's checkpoint says, by UID; ``kept`` are CPUs that no pool may have. LSE pods have
    their CPUs for themselves; BE pods share those of LSR pods. A pod that has finished has no CPUs.
    """
    by_uid = {pod.uid: pod for pod in pods}
    own = [pod for pod in pods if pod.allocation.cpus and not pod.has_finished]
    allocations = tuple(
        CPUAllocation(pod.pod.metadata.namespace if pod else "", pod.pod.metadata.name if pod else "", uid, cpus)
        for uid, cpus in sorted(of_kubelet.items())
        if not _is_managed_here(pod := by_uid.get(uid))
    )
    taken = _union(allocation.cpus for allocation in allocations)
    exclusive = _union(pod.allocation.cpus for pod in own if pod.qos is QoSClass.LSE)
    return CPUShares(
        ls_pools=_pools(topology, taken | _union(pod.allocation.cpus for pod in own), kept),
        be_pools=_pools(topology, taken | exclusive, kept),
        allocations=allocations,
    )


def _is_managed_here(pod: NodePod | None) -> bool:
    """Whether what kubelet has given to the pod does not count: koordlet has moved it to other CPUs."""
    return pod is not None and (pod.qos in (QoSClass.LS, QoSClass.BE) or bool(pod.allocation.cpus))


def _pools(topology: CPUTopology, taken: frozenset[int], kept: frozenset[int]) -> tuple[CPUPool, ...]:
    """A NUMA node of which all CPUs are taken has no pool; one that is left with kept ones only has an empty pool."""
    sockets = {cpu.numa_node: cpu.socket for cpu in reversed(topology.cpus)}
    pools = (
        CPUPool(sockets[node], node, frozenset(cpus) - taken).without(kept)
        for node, cpus in topology.by_numa_node.items()
        if not frozenset(cpus) <= taken
    )
    return tuple(sorted(pools, key=lambda pool: (pool.socket, pool.numa_node)))


def _union(parts: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*parts)
