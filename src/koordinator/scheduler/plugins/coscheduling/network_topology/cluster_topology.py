"""The current network topology, from the labels of the nodes and the ClusterNetworkTopology ``default``, and the
controller of its ``status.detailStatus``, which lists the domains that nodes form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from koordinator.api.cluster_network_topology import (
    DEFAULT_NAME,
    NODE_LAYER,
    ClusterNetworkTopology,
    DetailStatus,
    TopologyInfo,
)
from koordinator.api.codec import to_document
from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES
from koordinator.api.node import Node
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import (
    ROOT,
    Layer,
    TopologyError,
    Tree,
    build_tree,
    layers_of,
    path_of,
)

NO_TOPOLOGY: Final = "no cluster network topology"
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class ClusterTopology:
    """The layers and nodes of the network. The tree is rebuilt when it is read after a change, so that a thousand nodes
    that are added one after another cost one tree."""

    def __init__(self) -> None:
        self.version = 0
        """Increases whenever the tree may have changed."""
        self.problem = ""
        """Why the current object cannot be used; empty if it can, and if there is none."""
        self._layers: tuple[Layer, ...] | None = None
        self._labels: dict[str, Mapping[str, str]] = {}
        self._paths: dict[str, tuple[str, ...] | str] = {}
        self._tree: Tree | None = None

    @property
    def tree(self) -> Tree | None:
        """None until there is a valid object. When the object is deleted or becomes invalid, its last valid layers stay
        in use."""
        if self._tree is None and self._layers is not None:
            self._tree = build_tree(self._layers, self._paths.items())
        return self._tree

    def clear(self) -> None:
        """Forget all nodes."""
        self._labels, self._paths = {}, {}
        self._changed()

    def set_node(self, node: Node) -> None:
        """The node was added or updated."""
        name = node.metadata.name
        self._labels[name] = node.metadata.labels or _NO_LABELS
        if self._layers is None:
            return
        path = path_of(self._layers, name, self._labels[name])
        if self._paths.get(name) != path:
            self._paths[name] = path
            self._changed()

    def remove_node(self, name: str) -> None:
        """The node was deleted."""
        self._labels.pop(name, None)
        if self._paths.pop(name, None) is not None:
            self._changed()

    def set_object(self, topology: ClusterNetworkTopology | None) -> str:
        """The object was added, updated or, with None, deleted. Return why it cannot be used; empty if it can."""
        self.problem = ""
        if topology is None:
            return ""
        try:
            layers = layers_of(topology.spec.network_topology_spec)
        except TopologyError as error:
            self.problem = str(error)
            return self.problem
        if layers != self._layers:
            self._use(layers)
        return ""

    def _use(self, layers: Sequence[Layer]) -> None:
        self._layers = tuple(layers)
        self._paths = {name: path_of(layers, name, labels) for name, labels in self._labels.items()}
        self._changed()

    def _changed(self) -> None:
        self._tree = None
        self.version += 1


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


@dataclass(eq=False)
class TopologyStatusController:
    """Patches the status if it differs from the object's. Runs while this instance is the leader."""

    writer: ControllerWriter
    topology: ClusterTopology
    objects: Callable[[], Mapping[str, ClusterNetworkTopology]]
    name: str = "NetworkTopologyController"
    _compared: tuple[int, str] | None = None
    """The version of the tree and the resourceVersion of the object that were last compared."""

    async def run(self) -> None:
        """Run until cancelled, or until a write fails; then the caller runs it again."""
        self._compared = None
        while True:
            await self.writer.until(self._is_new, _IDLE)
            await self.writer.sleep(_GATHERING)
            await self._write()

    def _is_new(self) -> bool:
        return self._state() != self._compared

    def _state(self) -> tuple[int, str]:
        found = self.objects().get(DEFAULT_NAME)
        return self.topology.version, found.metadata.resource_version if found is not None else ""

    async def _write(self) -> None:
        state, found, tree = self._state(), self.objects().get(DEFAULT_NAME), self.topology.tree
        # If the object is invalid, the tree was built from an earlier version of it.
        if found is not None and tree is not None and not self.topology.problem:
            wanted = detail_status(tree)
            if wanted != found.status.detail_status:
                status = {"detailStatus": [to_document(each) for each in wanted]}
                patch = {"metadata": {"uid": found.metadata.uid}, "status": status}
                await self.writer.patch(CLUSTER_NETWORK_TOPOLOGIES, DEFAULT_NAME, "", patch, "status")
        self._compared = state
