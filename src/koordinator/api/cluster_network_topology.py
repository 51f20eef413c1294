"""scheduling.koordinator.sh ClusterNetworkTopology: the layers of the network, read off node labels."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import Int32, PresentText, RequiredText, Schema
from koordinator.api.meta import Object, WireStruct

CLUSTER_LAYER: Final = "ClusterTopologyLayer"
"""The root of every topology."""
NODE_LAYER: Final = "NodeTopologyLayer"
"""Its leaves."""
DEFAULT_NAME: Final = "default"
"""The only object that is read."""


class NetworkTopologySpec(WireStruct):
    """One layer of the network."""

    topology_layer: RequiredText = ""
    """The name of the layer, such as SpineLayer."""
    parent_topology_layer: str = ""
    """The name of the layer above it."""
    label_key: list[str] = []
    """Node labels, any of which names the node's place in the layer."""


class ClusterNetworkTopologySpec(WireStruct):
    """How the layers of the network follow from node labels."""

    network_topology_spec: Annotated[list[NetworkTopologySpec], Schema(required=True)] = []
    """The layers, each with the one above it."""


class TopologyInfo(WireStruct):
    """A layer and the name of one place in it."""

    topology_layer: RequiredText = ""
    """The layer."""
    topology_name: PresentText = ""
    """The name of the place, which is the value of the layer's node label."""


class DetailStatus(WireStruct):
    """One place in the network, with what is above and below it."""

    topology_info: Annotated[TopologyInfo, Schema(required=True)] = TopologyInfo()
    """The place itself."""
    parent_topology_info: TopologyInfo | None = None
    """The place above it."""
    child_topology_layer: str = ""
    """The layer of the places below it."""
    child_topology_names: list[str] = []
    """The names of the places below it."""
    node_num: Annotated[Int32, Schema(required=True)] = 0
    """How many nodes are below it."""


class ClusterNetworkTopologyStatus(WireStruct):
    """The tree that was built from the labels of the nodes."""

    detail_status: list[DetailStatus] = []
    """One entry for each place in the tree."""


class ClusterNetworkTopology(Object):
    """The layers of the cluster's network, read off node labels, for pods that must be near to each other. Only the
    object named default is read."""

    spec: ClusterNetworkTopologySpec = ClusterNetworkTopologySpec()
    status: ClusterNetworkTopologyStatus = ClusterNetworkTopologyStatus()
