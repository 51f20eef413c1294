"""Resource names of the wire contract, how priority classes rename them, and the names that went out of use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.api.priority import PriorityClass
from koordinator.api.quantity import Quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGE_PAGES_PREFIX: Final = "hugepages-"

BATCH_CPU: Final = "kubernetes.io/batch-cpu"
"""Milli-CPU as a plain integer."""
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"
MID_CPU: Final = "kubernetes.io/mid-cpu"
"""Milli-CPU as a plain integer."""
MID_MEMORY: Final = "kubernetes.io/mid-memory"
FREE_CPU: Final = "kubernetes.io/free-cpu"
"""Ours, as FREE_MEMORY is: the original has no resources for koord-free. Milli-CPU as a plain integer."""
FREE_MEMORY: Final = "kubernetes.io/free-memory"
EXTENDED_CPUS: Final = (MID_CPU, BATCH_CPU, FREE_CPU)
"""What pods of a class request instead of CPU; the more important class first."""
EXTENDED_MEMORIES: Final = (MID_MEMORY, BATCH_MEMORY, FREE_MEMORY)
BEST_EFFORT_CPUS: Final = (BATCH_CPU, FREE_CPU)
"""Those of best-effort pods among them."""
BEST_EFFORT_MEMORIES: Final = (BATCH_MEMORY, FREE_MEMORY)
BEST_EFFORT: Final = (BATCH_CPU, BATCH_MEMORY, FREE_CPU, FREE_MEMORY)
"""Both, in the order in which a pod's annotation has them: class by class."""

GPU: Final = "koordinator.sh/gpu"
"""Percent of one card; admission replaces it by GPU_CORE and GPU_MEMORY_RATIO."""
GPU_CORE: Final = "koordinator.sh/gpu-core"
GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED: Final = "koordinator.sh/gpu.shared"
RDMA: Final = "koordinator.sh/rdma"
FPGA: Final = "koordinator.sh/fpga"
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
HYGON_DCU: Final = "dcu.com/gpu"
HUAWEI_NPU_CORE: Final = "huawei.com/npu-core"
HUAWEI_NPU_CPU: Final = "huawei.com/npu-cpu"
HUAWEI_NPU_DVPP: Final = "huawei.com/npu-dvpp"

DEPRECATED_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "koordinator.sh/batch-cpu": BATCH_CPU,
        "koordinator.sh/batch-memory": BATCH_MEMORY,
        "kubernetes.io/rdma": RDMA,
        "kubernetes.io/fpga": FPGA,
        "kubernetes.io/gpu": GPU,
        "kubernetes.io/gpu-core": GPU_CORE,
        "kubernetes.io/gpu-memory": GPU_MEMORY,
        "kubernetes.io/gpu-memory-ratio": GPU_MEMORY_RATIO,
    }
)
"""Old name -> the name that replaced it."""

DEPRECATED_BATCH_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {old: new for old, new in DEPRECATED_NAMES.items() if new in (BATCH_CPU, BATCH_MEMORY)}
)
"""The part of DEPRECATED_NAMES that applies to quotas."""

_EXTENDED: Final[Mapping[PriorityClass, Mapping[str, str]]] = {
    PriorityClass.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    PriorityClass.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
    PriorityClass.FREE: {CPU: FREE_CPU, MEMORY: FREE_MEMORY},
}
_PRIORITY_OF: Final[Mapping[str, PriorityClass]] = {
    extended: priority for priority, names in _EXTENDED.items() for extended in names.values()
}


def extended_name(name: str, priority: PriorityClass) -> str:
    """What pods of a priority class request instead of ``name``; empty where the class has no such resource. Classes
    that rename nothing (prod, none) keep every name."""
    names = _EXTENDED.get(priority)
    return name if names is None else names.get(name, "")


def priority_of_extended(name: str) -> PriorityClass:
    """The priority class whose pods use an extended resource; NONE for every other resource."""
    return _PRIORITY_OF.get(name, PriorityClass.NONE)


def with_current_names(
    resources: Mapping[str, Quantity], renames: Mapping[str, str] = DEPRECATED_NAMES
) -> Mapping[str, Quantity]:
    """The same resources under their current names; an old name stays where the new one is present too.

    Returns ``resources`` itself when there is nothing to rename, which is nearly always.
    """
    if renames.keys().isdisjoint(resources):
        return resources
    renamed = dict(resources)
    for old, new in renames.items():
        if old in renamed and new not in renamed:
            renamed[new] = renamed.pop(old)
    return renamed
