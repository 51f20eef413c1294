"""The CPUs and NUMA nodes that the scheduler has given to a pod, as scheduling.koordinator.sh/resource-status says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.annotations import RESOURCE_STATUS
from koordinator.api.codec import DecodeError, decode
from koordinator.api.cpu_list import parse_cpu_list
from koordinator.api.resource_names import BATCH_CPU, CPU
from koordinator.api.resource_status import ResourceStatus


@dataclass(frozen=True, slots=True)
class CPUAllocation:
    """``cpus`` belong to the pod alone; ``numa_nodes`` are those that it has CPU of, without CPUs of its own."""

    cpus: frozenset[int] = frozenset()
    numa_nodes: frozenset[int] = frozenset()
    problem: str = ""
    """Why the annotation cannot be read: then the pod has nothing of its own."""


NOTHING: Final = CPUAllocation()


def cpu_allocation(annotations: Mapping[str, str]) -> CPUAllocation:
    text = annotations.get(RESOURCE_STATUS)
    if not text:
        return NOTHING
    try:
        status = decode(text, ResourceStatus)
        return CPUAllocation(parse_cpu_list(status.cpuset), _numa_nodes(status))
    except DecodeError as error:
        return CPUAllocation(problem=f"metadata.annotations[{RESOURCE_STATUS}]: {error}")
    except ValueError as error:
        return CPUAllocation(problem=f"metadata.annotations[{RESOURCE_STATUS}]: cpuset: {error}")


def _numa_nodes(status: ResourceStatus) -> frozenset[int]:
    """Memory or devices alone do not bind the CPUs of a pod."""
    amounts = [
        (each.node, each.resources.get(name)) for each in status.numa_node_resources for name in (CPU, BATCH_CPU)
    ]
    has_cpu = any(amount is not None and amount.nanos > 0 for _, amount in amounts)
    return frozenset(node for node, _ in amounts if node >= 0) if has_cpu else frozenset()
