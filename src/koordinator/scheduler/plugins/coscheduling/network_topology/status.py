"""The controller of ``status.detailStatus`` of the ClusterNetworkTopology, which lists the domains that nodes form."""

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
"""Seconds for which changes are batched: nodes are created and labelled in bursts."""
_IDLE: Final = 60.0


def detail_status(tree: Tree) -> list[DetailStatus]:
    """All domains but the nodes, parents before their children."""
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
    """The status as a JSON document, with the field names of the API."""
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
    """Patches the status if it differs from the object's. Runs while this instance is the leader."""

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
        """The version of the tree and the resourceVersion of the object that were last compared."""

    async def run(self) -> None:
        """Run until cancelled, or until a write fails; then the caller runs it again."""
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
        # If the object is invalid, the tree was built from an earlier version of it.
        if found is not None and tree is not None and not self._topology.problem:
            wanted = detail_status(tree)
            if wanted != found.status.detail_status:
                status = {"detailStatus": [status_document(each) for each in wanted]}
                patch = {"metadata": {"uid": found.metadata.uid}, "status": status}
                await self._writer.patch(CLUSTER_NETWORK_TOPOLOGIES, DEFAULT_NAME, "", patch, "status")
        self._compared = state
