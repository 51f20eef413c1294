"""``status.detailStatus`` of the ClusterNetworkTopology: the domains that were found, for people and other programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.api.cluster_network_topology import (
    DEFAULT_NAME,
    NODE_LAYER,
    ClusterNetworkTopology,
    DetailStatus,
    TopologyInfo,
)
from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import ClusterTopology
from koordinator.scheduler.plugins.coscheduling.network_topology.tree import ROOT, Tree

_GATHERING: Final = 1.0
"""Seconds in which changes gather: nodes come and get their labels in bursts."""
_IDLE: Final = 60.0


def detail_status(tree: Tree) -> list[DetailStatus]:
    """All domains but the nodes, each before those in it."""
    nodes = tree.sums(dict.fromkeys(tree.leaf_of.values(), 1))
    found: list[DetailStatus] = []

    def add(domain: int, depth: int, parent: TopologyInfo | None) -> None:
        info = TopologyInfo(tree.layers[depth], tree.names[domain])
        children = tree.children[domain]
        below = tree.layers[depth + 1] if children else ""
        names = [tree.names[child] for child in children] if below != NODE_LAYER else []
        found.append(DetailStatus(info, parent, below, names, int(nodes[domain])))
        for child in children if below != NODE_LAYER else ():
            add(child, depth + 1, info)

    add(ROOT, 0, None)
    return found


def status_document(status: DetailStatus) -> dict[str, Any]:
    """As the API has it."""
    found: dict[str, Any] = {"topologyInfo": _info_document(status.topology_info), "nodeNum": status.node_num}
    if status.parent_topology_info is not None:
        found["parentTopologyInfo"] = _info_document(status.parent_topology_info)
    if status.child_topology_layer:
        found["childTopologyLayer"] = status.child_topology_layer
    if status.child_topology_names:
        found["childTopologyNames"] = list(status.child_topology_names)
    return found


def _info_document(info: TopologyInfo) -> dict[str, str]:
    return {"topologyLayer": info.topology_layer, "topologyName": info.topology_name}


class TopologyStatusController:
    """Writes the status when it is another one than the object has. Runs while this instance leads."""

    name = "NetworkTopologyController"

    def __init__(
        self,
        writer: ControllerWriter,
        topology: ClusterTopology,
        objects: Callable[[], Mapping[str, ClusterNetworkTopology]],
    ) -> None:
        self._writer = writer
        self._topology = topology
        self._objects = objects
        self._compared: tuple[int, str] | None = None
        """The version of the tree, and of the object, that were compared last."""

    async def run(self) -> None:
        """Until cancelled, or until the status could not be written: it begins anew then."""
        self._compared = None
        while True:
            await self._writer.until(self._is_new, _IDLE)
            await self._writer.sleep(_GATHERING)
            await self._write()

    def _is_new(self) -> bool:
        return self._state() != self._compared

    def _state(self) -> tuple[int, str]:
        found = self._objects().get(DEFAULT_NAME)
        return self._topology.version, found.metadata.resource_version if found is not None else ""

    async def _write(self) -> None:
        state, found, tree = self._state(), self._objects().get(DEFAULT_NAME), self._topology.tree
        # What the tree was made from is not what the object says now.
        if found is not None and tree is not None and not self._topology.problem:
            wanted = detail_status(tree)
            if wanted != found.status.detail_status:
                status = {"detailStatus": [status_document(each) for each in wanted]}
                patch = {"metadata": {"uid": found.metadata.uid}, "status": status}
                await self._writer.patch(CLUSTER_NETWORK_TOPOLOGIES, DEFAULT_NAME, "", patch, "status")
        self._compared = state
