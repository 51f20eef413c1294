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
    """How far it is from one zone to another."""

    name: RequiredText = ""
    """The other zone."""
    value: Annotated[int, Schema(required=True)] = 0
    """The distance; to itself it is 10 by convention."""


class AttributeInfo(WireStruct):
    """A property by its name."""

    name: RequiredText = ""
    """The name of the property."""
    value: PresentText = ""
    """The value of the property."""


class ResourceInfo(WireStruct):
    """How much a zone has of one resource."""

    name: RequiredText = ""
    """The resource."""
    capacity: RequiredQuantity = _ZERO
    """All that there is."""
    allocatable: RequiredQuantity = _ZERO
    """What pods may use."""
    available: RequiredQuantity = _ZERO
    """What is not allocated yet."""


class Zone(WireStruct):
    """A NUMA node, or another part of the machine."""

    name: RequiredText = ""
    """The name of the zone, such as node-0."""
    type: RequiredText = ""
    """The kind of zone, such as Node."""
    parent: str = ""
    """The zone that this one is a part of."""
    costs: list[CostInfo] = []
    """How far it is to other zones."""
    attributes: list[AttributeInfo] = []
    """Properties of the zone."""
    resources: list[ResourceInfo] = []
    """What the zone has."""


class NodeResourceTopology(Object):
    """v1alpha1."""

    topology_policies: Annotated[list[str], Schema(required=True)] = []
    """The kubelet's topology manager policy and scope, such as SingleNUMANodePodLevel."""
    zones: Annotated[list[Zone], Schema(required=True)] = []
    """The NUMA nodes and what each has."""


class StoredNodeResourceTopology(Object):
    """v1alpha2."""

    topology_policies: list[str] = []
    """The kubelet's topology manager policy and scope; superseded by attributes."""
    zones: Annotated[list[Zone], Schema(required=True)] = []
    """The NUMA nodes and what each has."""
    attributes: list[AttributeInfo] = []
    """Properties of the node as a whole."""
