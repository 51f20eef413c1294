"""What hooks go by beside the pod: the node's policy, its pools of CPUs, how fast they are, and what its kernel can.

A snapshot: hooks are functions of it and of the pod, so that a rule that changes needs no state to be changed, only
the pods to be gone over again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.koordlet.report.node_topology.cpu_pools import CPUPool
from koordinator.node.resctrl import CacheAllocation


@dataclass(frozen=True, slots=True)
class CPUPools:
    """The CPUs that pods share, by NUMA node, and those of the system's own processes."""

    shared: tuple[CPUPool, ...] = ()
    best_effort: tuple[CPUPool, ...] = ()
    system: frozenset[int] = frozenset()
    is_kubelet_static: bool = False
    """Whether kubelet gives CPUs to containers itself."""

    @property
    def all_shared(self) -> frozenset[int]:
        return cpus_of(self.shared)


@dataclass(frozen=True, slots=True)
class Rules:
    policy: NodeSLOSpec | None = None
    """With the agent's defaults; None while the node has no NodeSLO."""
    pools: CPUPools | None = None
    """None while the topology of the node is not known."""
    cpus: frozenset[int] = frozenset()
    """Every CPU that is online; empty while that is not known."""
    normalization_ratio: float | None = None
    """How many plain cores a core is worth; None: limits are not normalised."""
    has_group_identity: bool = False
    """Whether the kernel has cpu.bvt_warp_ns or a switch for it."""
    group_identity_switch: int | None = None
    """What sched_group_identity_enabled shows; None if there is no such sysctl."""
    has_core_scheduling_switch: bool = False
    """Whether there is the sysctl sched_core."""
    has_core_scheduling_feature: bool = False
    """Whether sched_features names CORE_SCHED, as older kernels of Anolis OS do."""
    is_suppression_on: bool = True
    """Whether CPU suppress works at all (gate BECPUSuppress)."""
    shares_best_effort_pools: bool = False
    """Whether BE pods with a NUMA node stay on that node's pool (gate BECPUManager)."""
    unsets_quota: bool = True
    """Whether pods with CPUs of their own have no quota."""
    caches: CacheAllocation | None = None
    """What of level 3 caches and memory bandwidth can be shared out; None where the machine has no resctrl."""
    now: float = field(default=0.0, compare=False)
    """Seconds since 1970, as the times of files are. No function of one pod goes by it."""
    knows_pods: bool = False
    """Whether the kubelet has listed its pods."""
    has_network_classes: bool = False
    """Whether cgroups have net_cls.classid."""
    network_classes: Mapping[str, int] = field(default_factory=dict)
    """The minor numbers of classes of traffic control of pods that have one of their own, by UID."""
    hami_library: str = ""
    """Path of the library that holds a container to its share of a GPU."""


def cpus_of(pools: Iterable[CPUPool]) -> frozenset[int]:
    return frozenset().union(*(pool.cpus for pool in pools))
