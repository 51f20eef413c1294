"""The current network topology, from the labels of the nodes and the ClusterNetworkTopology ``default``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.node import Node
from koordinator.scheduler.plugins.coscheduling.network_topology.tree import (
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
