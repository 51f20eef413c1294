"""What the scheduler has given to a pod of a node, as the annotation scheduling.koordinator.sh/resource-status says."""

from __future__ import annotations

import msgspec

from koordinator.api.meta import WireStruct
from koordinator.api.pod import ResourceList


class NUMANodeResource(WireStruct):
    """What a pod gets from one NUMA node."""

    node: int = 0
    resources: ResourceList = {}


class ResourceStatus(WireStruct):
    """``cpuset`` is a list of CPUs that belong to the pod alone."""

    cpuset: str = ""
    numa_node_resources: list[NUMANodeResource] = msgspec.field(default_factory=list, name="numaNodeResources")
