"""The annotation node.koordinator.sh/extended-resource-spec: what the containers of a pod have of batch resources.

The container runtime interface does not carry extended resources, so that the node agent finds them there.
"""

from __future__ import annotations

from koordinator.api.meta import WireStruct
from koordinator.api.pod import ResourceList


class ExtendedResources(WireStruct):
    limits: ResourceList = {}
    requests: ResourceList = {}


class ExtendedResourceSpec(WireStruct):
    """The JSON of the annotation."""

    containers: dict[str, ExtendedResources] = {}
