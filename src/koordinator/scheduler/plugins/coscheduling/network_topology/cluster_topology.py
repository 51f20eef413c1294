"""The network as it is at present: follows the nodes and the ClusterNetworkTopology ``default``."""

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
    """The tree is made when somebody asks for it and something has changed that it depends on, so that a thousand nodes
    that come one after another cost one tree."""

    def __init__(self) -> None:
        self.version = 0
        """Grows whenever the tree may be another one."""
        self.problem = ""
        """Why the object, as it is, cannot be used; empty if it can, and if there is none."""
        self._layers: tuple[Layer, ...] | None = None
        self._labels: dict[str, Mapping[str, str]] = {}
        self._paths: dict[str, tuple[str, ...] | str] = {}
        self._tree: Tree | None = None

    @property
    def tree(self) -> Tree | None:
        """None as long as there has been no object that can be used. When it goes, or becomes one that cannot be, the
        layers stay as they were."""
        if self._tree is None and self._layers is not None:
            self._tree = build_tree(self._layers, self._paths.items())
        return self._tree

    def set_node(self, node: Node) -> None:
        """The node is new or has changed."""
        name = node.metadata.name
        self._labels[name] = node.metadata.labels or _NO_LABELS
        if self._layers is None:
            return
        path = path_of(self._layers, name, self._labels[name])
        if self._paths.get(name) != path:
            self._paths[name] = path
            self._changed()

    def remove_node(self, name: str) -> None:
        """The node is gone."""
        self._labels.pop(name, None)
        if self._paths.pop(name, None) is not None:
            self._changed()

    def set_object(self, topology: ClusterNetworkTopology | None) -> str:
        """The object is new, has changed or, with None, is gone. Returns why it cannot be used; empty if it can."""
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
