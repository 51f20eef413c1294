"""Which domain of the network takes the members of a gang, and how many of them each node of it gets.

Koordinator 1.8, pkg/scheduler/plugins/coscheduling/core/network_topology_solver.go: the deepest domains that can hold
all members come first; of these the one with the most pods of the same kind, then the one with the fewest slots. Pure
functions, without the scheduler's state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.plugins.coscheduling.network_topology.requirements import MUST_GATHER, TopologySpec
from koordinator.scheduler.plugins.coscheduling.network_topology.tree import ROOT, Domains, Tree

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
    slots = _slots(tree, nodes, steps)
    gather_depth = tree.depth_of(demand.gather_in) if demand.gather_in else 0
    gathered = tree.levels[gather_depth] if gather_depth is not None else _NOWHERE
    found = Distribution(gathered, gather_depth or 0, slots)
    if not demand.count or demand.count % steps[ROOT]:
        return found
    candidates, depth = _smallest(tree, slots, demand.count, gathered, gather_depth or 0)
    if not candidates:
        return found
    order = _Order(tree, slots, tree.sums(nodes.scores), tree.sums(nodes.existing))
    # Every candidate can place all members, since a domain can fill all its slots exactly, see _steps.
    best = min(candidates, key=lambda domain: order.key(domain, fullest_first=True))
    by_node: list[tuple[int, int]] = []
    _fill(tree, slots, order, best, demand.count, by_node)
    return Distribution(gathered, gather_depth or 0, slots, best, depth, tuple(by_node))


def _steps(tree: Tree, demand: Demand) -> list[int]:
    """By depth, of what the number of members in a domain must be a multiple: if nodes take multiples of four, no
    domain can take six. So the children of a domain can fill its slots, after rounding down, exactly."""
    steps = [1] * len(tree.layers)
    below = 1
    for depth in reversed(range(len(tree.layers))):
        below = steps[depth] = lcm(demand.multiples.get(tree.layers[depth], 1), below)
    return steps


def _slots(tree: Tree, nodes: NodeSlots, steps: Sequence[int]) -> NDArray[np.int64]:
    if steps[ROOT] == 1:
        return tree.sums(nodes.slots)
    found = np.zeros(len(tree), dtype=np.int64)
    for leaf, amount in nodes.slots.items():
        found[leaf] = amount
    for depth in reversed(range(len(tree.layers))):
        level = tree.levels[depth]
        found[level] -= found[level] % steps[depth]
        if depth:
            np.add.at(found, tree.parents[level], found[level])
    return found


def _smallest(tree: Tree, slots: NDArray[np.int64], count: int, gathered: Domains, depth: int) -> tuple[list[int], int]:
    """Of ``gathered``, which are at ``depth``, and all below: the deepest that can hold ``count``, with their depth."""
    found: list[int] = []
    level = [domain for domain in gathered.tolist() if slots[domain] >= count]
    while level:
        found = level
        level = [child for domain in level for child in tree.children[domain] if slots[child] >= count]
        depth += bool(level)
    return found, depth


class _Order:
    """The order in which domains get members: by pods of the same kind, then by slots, each compared at the domain, its
    parent and so on; then by score and name."""

    def __init__(
        self, tree: Tree, slots: NDArray[np.int64], scores: NDArray[np.int64], existing: NDArray[np.int64]
    ) -> None:
        self._tree = tree
        self._slots = slots
        self._scores = scores
        self._existing = existing

    def key(self, domain: int, *, fullest_first: bool) -> tuple[Any, ...]:
        """The sort key of a domain, in ascending order. ``fullest_first`` prefers few slots to many."""
        chain = [domain]
        while (parent := int(self._tree.parents[chain[-1]])) >= 0:
            chain.append(parent)
        existing, slots = -self._existing[chain], self._slots[chain]
        if not fullest_first:
            slots = -slots
        name = self._tree.names[domain]
        return tuple(existing.tolist()), tuple(slots.tolist()), -int(self._scores[domain]), name, domain


def _fill(
    tree: Tree, slots: NDArray[np.int64], order: _Order, domain: int, count: int, by_node: list[tuple[int, int]]
) -> None:
    """Assign ``count`` members, which must fit, to the domain: its children are filled one after another. Appends to
    ``by_node``."""
    children = tree.children[domain]
    if not children:
        by_node.append((domain, count))
        return
    for child in sorted(children, key=lambda each: order.key(each, fullest_first=False)):
        given = min(int(slots[child]), count)
        if given:
            _fill(tree, slots, order, child, given, by_node)
            count -= given
