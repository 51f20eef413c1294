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
    topology_layer: RequiredText = ""
    parent_topology_layer: str = ""
    label_key: list[str] = []
    """Node labels, any of which names the node's place in the layer."""


class ClusterNetworkTopologySpec(WireStruct):
    network_topology_spec: Annotated[list[NetworkTopologySpec], Schema(required=True)] = []


class TopologyInfo(WireStruct):
    topology_layer: RequiredText = ""
    topology_name: PresentText = ""


class DetailStatus(WireStruct):
    topology_info: Annotated[TopologyInfo, Schema(required=True)] = TopologyInfo()
    parent_topology_info: TopologyInfo | None = None
    child_topology_layer: str = ""
    child_topology_names: list[str] = []
    node_num: Annotated[Int32, Schema(required=True)] = 0


class ClusterNetworkTopologyStatus(WireStruct):
    detail_status: list[DetailStatus] = []


class ClusterNetworkTopology(Object):
    spec: ClusterNetworkTopologySpec = ClusterNetworkTopologySpec()
    status: ClusterNetworkTopologyStatus = ClusterNetworkTopologyStatus()
