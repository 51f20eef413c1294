"""The network topology as a tree: the layers are those of the ClusterNetworkTopology ``default``, the domains come from
the labels of the nodes.

Koordinator 1.8, pkg/scheduler/frameworkext/networktopology/tree.go. Every path from the root to a node passes all
layers, so that all domains of a layer are at the same depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.api.cluster_network_topology import CLUSTER_LAYER, NODE_LAYER, NetworkTopologySpec

ROOT: Final = 0
"""The domain that is the whole network."""

Domains = NDArray[np.intp]


class TopologyError(Exception):
    """The layers of a ClusterNetworkTopology do not make a tree; the message says why."""


@dataclass(frozen=True, slots=True)
class Layer:
    """``label_keys``: the first of these labels with a value on a node names its domain in this layer."""

    name: str
    label_keys: tuple[str, ...] = ()


def layers_of(spec: Sequence[NetworkTopologySpec]) -> tuple[Layer, ...]:
    """The layers from the uppermost one below the root down to the nodes. Raises TopologyError unless every layer is on
    the path from the nodes to the root."""
    by_name = {each.topology_layer: each for each in spec}
    found: list[Layer] = []
    seen: set[str] = set()
    name = NODE_LAYER
    for _ in spec:
        layer = by_name.get(name)
        if layer is None:
            raise TopologyError(f'topology layer "{name}" not found in spec')
        if name in seen:
            raise TopologyError(f'topology layer "{name}" is above itself')
        seen.add(name)
        found.append(Layer(name, tuple(layer.label_key)))
        name = layer.parent_topology_layer
    return tuple(reversed(found))


def path_of(layers: Sequence[Layer], node_name: str, labels: Mapping[str, str]) -> tuple[str, ...] | str:
    """The names of the node's domains from the top, its own name last; or, as a text, why it is in no domain."""
    path: list[str] = []
    for layer in layers:
        if layer.name == NODE_LAYER:
            path.append(node_name)
            continue
        name = next((labels[key] for key in layer.label_keys if labels.get(key)), "")
        if not name:
            if len(path) != len(layers) - 2:
                return f'node "{node_name}" missing network topology layer "{layer.name}"'
            # A domain of its own, so that the domains of each layer are at one depth.
            name = node_name
        path.append(name)
    return tuple(path)


@dataclass(frozen=True, eq=False)
class Tree:
    """The domains, numbered so that the root is 0, parents come before their children, and siblings are in the order of
    their names."""

    layers: tuple[str, ...]
    """The names of the layers by depth, that of the root first."""
    names: list[str]
    """The name of each domain; empty for the root."""
    parents: Domains
    """The parent of each domain; -1 for the root."""
    levels: list[Domains]
    """The domains of each depth, ascending."""
    children: list[list[int]]
    leaf_of: dict[str, int]
    """Node -> its domain."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Node -> why it is in no domain."""

    def __len__(self) -> int:
        return len(self.names)

    def depth_of(self, layer: str) -> int | None:
        """The depth of the layer, 0 for the root's; None for an unknown layer."""
        return self.layers.index(layer) if layer in self.layers else None

    def sums(self, of_leaves: Mapping[int, int]) -> NDArray[np.int64]:
        """For each domain the sum over its nodes; nodes missing in ``of_leaves`` count as 0."""
        found = np.zeros(len(self), dtype=np.int64)
        for leaf, amount in of_leaves.items():
            found[leaf] = amount
        for level in reversed(self.levels[1:]):
            np.add.at(found, self.parents[level], found[level])
        return found

    def text(self, domain: int, depth: int) -> str:
        """``layer/name``."""
        return f"{self.layers[depth]}/{self.names[domain]}"


def build_tree(layers: Sequence[Layer], nodes: Iterable[tuple[str, tuple[str, ...] | str]]) -> Tree:
    """Build the tree. ``nodes``: pairs of a node's name and the result of ``path_of``."""
    left_out: dict[str, str] = {}
    paths: dict[str, tuple[str, ...]] = {}
    for name, path in nodes:
        if isinstance(path, str):
            left_out[name] = path
        else:
            paths[name] = path
    names, parents, children = [""], [-1], [list[int]()]
    levels: list[list[int]] = [[ROOT]]
    domain_at: dict[tuple[str, ...], int] = {(): ROOT}
    for depth in range(1, len(layers) + 1):
        level: list[int] = []
        # Domains of equal names below different parents are different domains.
        for prefix in sorted({path[:depth] for path in paths.values()}):
            number, parent = len(names), domain_at[prefix[:-1]]
            domain_at[prefix] = number
            names.append(prefix[-1])
            parents.append(parent)
            children.append([])
            children[parent].append(number)
            level.append(number)
        levels.append(level)
    return Tree(
        layers=(CLUSTER_LAYER, *(layer.name for layer in layers)),
        names=names,
        parents=np.array(parents, dtype=np.intp),
        levels=[np.array(level, dtype=np.intp) for level in levels],
        children=children,
        leaf_of={name: domain_at[path] for name, path in paths.items()} if layers else {},
        left_out=dict(sorted(left_out.items())),
    )
