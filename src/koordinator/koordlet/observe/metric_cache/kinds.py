"""Every kind of sample that the agent keeps, with its labels and its unit: what something asks for the past of. What is
used now, and what is read more rarely, is where it was read.

The names are the original's. A kind belongs to a group: the kinds that are measured in one round, at one time and with
one retention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True, eq=False)
class MetricKind:
    """Compared by identity: there is one object for each kind."""

    name: str
    group: str
    unit: str
    labels: tuple[str, ...] = ()

    def series(self, **labels: str) -> Series:
        """The series with these labels. ValueError unless they are exactly the labels of the kind."""
        if tuple(labels) == self.labels:
            return Series(self, tuple(labels.values()))
        if labels.keys() != set(self.labels):
            raise ValueError(f"metric {self.name} has the labels {list(self.labels)}, not {list(labels)}")
        return Series(self, tuple(labels[name] for name in self.labels))


class Series(NamedTuple):
    """Samples of one thing; ``values`` are those of the kind's labels, in their order."""

    kind: MetricKind
    values: tuple[str, ...]


class Round(NamedTuple):
    """What was measured at one time (ms since 1970), all of one group, in the unit that the series' kind says."""

    at: int
    samples: Mapping[Series, float]


NODE: Final = "node"
"""The node and its system, every second."""
PODS: Final = "pods"
"""CPU and GPUs of QoS classes, pods and host applications, every second."""
MEMORY: Final = "memory"
"""Of pods and host applications, every few seconds."""
COLD_PAGES: Final = "cold_pages"

_GPU: Final = ("gpu_minor", "gpu_device_uuid")

NODE_CPU_USAGE: Final = MetricKind("node_cpu_usage", NODE, "cores")
NODE_MEMORY_USAGE: Final = MetricKind("node_memory_usage", NODE, "bytes")
NODE_NUMA_CPU_USAGE: Final = MetricKind("node_numa_cpu_usage", NODE, "cores", ("numa_node_id",))
NODE_NUMA_MEMORY_USAGE: Final = MetricKind("node_numa_memory_usage", NODE, "bytes", ("numa_node_id",))
NODE_GPU_CORE_USAGE: Final = MetricKind("node_gpu_core_usage", NODE, "percent", _GPU)
NODE_GPU_MEMORY_USAGE: Final = MetricKind("node_gpu_memory_usage", NODE, "bytes", _GPU)

POD_CPU_USAGE: Final = MetricKind("pod_cpu_usage", PODS, "cores", ("pod_uid",))
POD_MEMORY_USAGE: Final = MetricKind("pod_memory_usage", MEMORY, "bytes", ("pod_uid",))
POD_GPU_CORE_USAGE: Final = MetricKind("pod_gpu_core_usage", PODS, "percent", ("pod_uid", *_GPU))
POD_GPU_MEMORY_USAGE: Final = MetricKind("pod_gpu_memory_usage", PODS, "bytes", ("pod_uid", *_GPU))

POD_CPU_THROTTLED: Final = MetricKind("pod_cpu_throttled", PODS, "ratio", ("pod_uid",))

NODE_BE: Final = MetricKind("node_be", PODS, "milli-CPU", ("be_resource", "be_allocation"))

NODE_MEMORY_USAGE_WITH_PAGE_CACHE: Final = MetricKind("node_memory_usage_with_page_cache", NODE, "bytes")
POD_MEMORY_USAGE_WITH_PAGE_CACHE: Final = MetricKind("pod_memory_usage_with_page_cache", MEMORY, "bytes", ("pod_uid",))

HOST_APPLICATION_CPU_USAGE: Final = MetricKind("host_application_cpu_usage", PODS, "cores", ("host_app_name",))
HOST_APPLICATION_MEMORY_USAGE: Final = MetricKind("host_application_memory_usage", MEMORY, "bytes", ("host_app_name",))
HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE: Final = MetricKind(
    "host_application_memory_usage_with_page_cache", MEMORY, "bytes", ("host_app_name",)
)

SYS_CPU_USAGE: Final = MetricKind("sys_cpu_usage", NODE, "cores")
SYS_MEMORY_USAGE: Final = MetricKind("sys_memory_usage", NODE, "bytes")
SYS_NUMA_CPU_USAGE: Final = MetricKind("sys_numa_cpu_usage", NODE, "cores", ("numa_node_id",))
SYS_NUMA_MEMORY_USAGE: Final = MetricKind("sys_numa_memory_usage", NODE, "bytes", ("numa_node_id",))

NODE_MEMORY_WITH_HOT_PAGE_USAGE: Final = MetricKind("node_memory_with_hot_page_usage", COLD_PAGES, "bytes")
POD_MEMORY_WITH_HOT_PAGE_USAGE: Final = MetricKind("pod_memory_with_hot_page_usage", COLD_PAGES, "bytes", ("pod_uid",))
HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE: Final = MetricKind(
    "host_application_memory_with_hot_page_usage", COLD_PAGES, "bytes", ("host_app_name",)
)

KINDS: Final[Mapping[str, MetricKind]] = {
    kind.name: kind for kind in tuple(globals().values()) if isinstance(kind, MetricKind)
}
"""All of them by name, for who has kept a name."""
