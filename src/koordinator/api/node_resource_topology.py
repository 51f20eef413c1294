"""topology.node.k8s.io NodeResourceTopology: the NUMA zones of a node and what each has.

Served in two versions without conversion between them; we read and write v1alpha1, v1alpha2 is what is stored.
"""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import PresentText, RequiredText, Schema
from koordinator.api.meta import Object, WireStruct
from koordinator.api.quantity import Quantity

NODE_ZONE_TYPE: Final = "Node"
NODE_ZONE_PREFIX: Final = "node-"
"""A zone is called ``node-`` and the number of its NUMA node."""

RequiredQuantity = Annotated[Quantity, Schema(required=True)]
_ZERO: Final = Quantity(0)


class CostInfo(WireStruct):
    name: RequiredText = ""
    value: Annotated[int, Schema(required=True)] = 0


class AttributeInfo(WireStruct):
    name: RequiredText = ""
    value: PresentText = ""


class ResourceInfo(WireStruct):
    name: RequiredText = ""
    capacity: RequiredQuantity = _ZERO
    allocatable: RequiredQuantity = _ZERO
    available: RequiredQuantity = _ZERO


class Zone(WireStruct):
    name: RequiredText = ""
    type: RequiredText = ""
    parent: str = ""
    costs: list[CostInfo] = []
    """How far it is to other zones."""
    attributes: list[AttributeInfo] = []
    resources: list[ResourceInfo] = []


class NodeResourceTopology(Object):
    """v1alpha1."""

    topology_policies: Annotated[list[str], Schema(required=True)] = []
    """The kubelet's topology manager policy and scope, such as SingleNUMANodePodLevel."""
    zones: Annotated[list[Zone], Schema(required=True)] = []


class StoredNodeResourceTopology(Object):
    """v1alpha2."""

    topology_policies: list[str] = []
    zones: Annotated[list[Zone], Schema(required=True)] = []
    attributes: list[AttributeInfo] = []
