"""The network topology as a tree, which domain of it takes the members of a gang, and how many of them each node gets.

Koordinator 1.8, pkg/scheduler/frameworkext/networktopology/tree.go: the layers are those of the ClusterNetworkTopology
``default``, the domains come from the labels of the nodes. Every path from the root to a node passes all layers, so
that all domains of a layer are at the same depth.

Koordinator 1.8, pkg/scheduler/plugins/coscheduling/core/network_topology_solver.go: the deepest domains that can hold
all members come first; of these the one with the most pods of the same kind, then the one with the fewest slots. Pure
functions, without the scheduler's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from koordinator.api.cluster_network_topology import CLUSTER_LAYER, NODE_LAYER, NetworkTopologySpec
from koordinator.api.explanations import DomainSlots
from koordinator.model.gang_declaration import MUST_GATHER, TopologySpec
from koordinator.scheduler.engine.framework_hooks import JobDiagnosis
from koordinator.scheduler.engine.post_filter import NodeStatus

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

    def sums(self, of_leaves: Mapping[int, int], steps: Sequence[int] = ()) -> NDArray[np.int64]:
        """For each domain the sum over its nodes; nodes missing in ``of_leaves`` count as 0. ``steps``: by depth, of
        what the amount in a domain is a multiple; what is beyond that does not count."""
        found = np.zeros(len(self), dtype=np.int64)
        for leaf, amount in of_leaves.items():
            found[leaf] = amount
        for depth, level in reversed([*enumerate(self.levels)]):
            if steps:
                found[level] -= found[level] % steps[depth]
            if depth:
                np.add.at(found, self.parents[level], found[level])
        return found

    def by_leaf(self, names: Sequence[str], of_rows: Mapping[int, int]) -> dict[int, int]:
        """The amounts by the domain number of the node instead of its row, without nodes that are in no domain."""
        leaf_of = self.leaf_of
        return {leaf_of[names[row]]: amount for row, amount in of_rows.items() if names[row] in leaf_of}

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


_NOWHERE = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class Demand:
    """``count``: the number of members to place. ``gather_in``: the layer of which one domain must take all of them,
    empty for any. ``multiples``: layer -> what the number of members in each of its domains must be a multiple of."""

    count: int
    gather_in: str = ""
    multiples: Mapping[str, int] = field(default_factory=dict)


def demand_of(spec: TopologySpec, count: int, tree: Tree) -> Demand:
    """The demand of ``count`` members. Of several layers with MustGather the one nearest to the nodes is used; if all
    of them are unknown, the last."""
    gather_in, deepest = "", -2
    for rule in spec.rules:
        if rule.strategy == MUST_GATHER:
            depth = tree.depth_of(rule.layer)
            if (depth if depth is not None else -1) >= deepest:
                gather_in, deepest = rule.layer, depth if depth is not None else -1
    multiples = {rule.layer: rule.pod_count_multiple for rule in spec.rules if rule.pod_count_multiple > 1}
    return Demand(count, gather_in, multiples)


@dataclass(frozen=True, slots=True)
class NodeSlots:
    """By the domain number of a node: ``slots``, how many members fit; ``scores``; and ``existing``, how many pods of
    the same kind are on it. Nodes that are left out have 0."""

    slots: Mapping[int, int]
    scores: Mapping[int, int] = field(default_factory=dict)
    existing: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Distribution:
    """``domain`` takes all members; None if none can. ``gathered``: the domains one of which had to; ``slots``: how
    many members fit in each domain."""

    gathered: Domains
    gather_depth: int
    slots: NDArray[np.int64]
    domain: int | None = None
    depth: int = 0
    by_node: tuple[tuple[int, int], ...] = ()
    """Pairs of a node's domain and the number of members it gets, in the order in which members are assigned."""


def distribute(tree: Tree, demand: Demand, nodes: NodeSlots) -> Distribution:
    """Distribute the members over nodes. The result does not depend on the order of the mappings."""
    steps = _steps(tree, demand)
    slots = tree.sums(nodes.slots, steps)
    gather_depth = tree.depth_of(demand.gather_in) if demand.gather_in else 0
    gathered = tree.levels[gather_depth] if gather_depth is not None else _NOWHERE
    found = Distribution(gathered, gather_depth or 0, slots)
    if not demand.count or demand.count % steps[ROOT]:
        return found
    candidates, depth = _smallest(tree, slots, demand.count, gathered, gather_depth or 0)
    if not candidates:
        return found
    scores, existing = tree.sums(nodes.scores), tree.sums(nodes.existing)

    def fullest_first(domain: int) -> tuple[Any, ...]:
        """By pods of the same kind, then by slots, each compared at the domain, its parent and so on; then by score and
        name."""
        chain = [domain]
        while (parent := int(tree.parents[chain[-1]])) >= 0:
            chain.append(parent)
        return *(-existing[chain]).tolist(), *slots[chain].tolist(), -int(scores[domain]), tree.names[domain], domain

    def emptiest_first(domain: int) -> tuple[Any, ...]:
        """The same among the children of one domain, but with many slots before few."""
        return -existing[domain], -slots[domain], -scores[domain], tree.names[domain]

    def fill(domain: int, count: int) -> Iterator[tuple[int, int]]:
        """Assign ``count`` members, which must fit, to the domain: its children are filled one after another."""
        if not tree.children[domain]:
            yield domain, count
        for child in sorted(tree.children[domain], key=emptiest_first):
            given = min(int(slots[child]), count)
            if given:
                yield from fill(child, given)
                count -= given

    # Every candidate can place all members, since a domain can fill all its slots exactly, see _steps.
    best = min(candidates, key=fullest_first)
    return Distribution(gathered, gather_depth or 0, slots, best, depth, tuple(fill(best, demand.count)))


def _steps(tree: Tree, demand: Demand) -> list[int]:
    """By depth, of what the number of members in a domain must be a multiple: if nodes take multiples of four, no
    domain can take six. So the children of a domain can fill its slots, after rounding down, exactly."""
    steps = [1] * len(tree.layers)
    below = 1
    for depth in reversed(range(len(tree.layers))):
        below = steps[depth] = lcm(demand.multiples.get(tree.layers[depth], 1), below)
    return steps


def _smallest(tree: Tree, slots: NDArray[np.int64], count: int, gathered: Domains, depth: int) -> tuple[list[int], int]:
    """Of ``gathered``, which are at ``depth``, and all below: the deepest that can hold ``count``, with their depth."""
    found: list[int] = []
    level = [domain for domain in gathered.tolist() if slots[domain] >= count]
    while level:
        found = level
        level = [child for domain in level for child in tree.children[domain] if slots[child] >= count]
        depth += bool(level)
    return found, depth


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """The plan for ``wanted`` members. ``nodes``: uid -> node; empty, with ``refusal``, if no domain can take all of
    them."""

    wanted: int
    demand: Demand
    nodes: Mapping[str, str] = field(default_factory=dict)
    domain: str = ""
    """The smallest domain that takes all of them, as ``layer/name``."""
    refusal: str = ""
    domain_slots: tuple[DomainSlots, ...] = ()
    """The domains one of which had to take all of them, those with the most slots first; not all if there are many."""
    domains: int = 0
    """How many such domains there are."""
    layers: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Why nodes are in no domain, for some of these nodes; they take no members."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """With ``refusal``: node -> how many members fit on it."""
    statuses: tuple[NodeStatus, ...] = ()
    """With ``refusal``: why no more fit."""

    @property
    def rejected_by(self) -> frozenset[str]:
        """The plugins that rejected nodes for members."""
        return frozenset(status.plugin for status in self.statuses if status.plugin)

    @property
    def diagnosis(self) -> JobDiagnosis | None:
        """Why there is no plan, for the diagnosis of the attempt; None if there is one."""
        if not self.refusal:
            return None
        return JobDiagnosis(self.refusal, self.demand.gather_in, self.slots, self.statuses)
