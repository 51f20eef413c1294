"""How the pods that a pod's constraints are about are spread at present, kept current row by row.

Built at the first question rather than when it is made: a class of pods may be planned some events before it is
evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from koordinator.model.node_selector import NodePredicate
from koordinator.scheduler.engine.columns import Mask, Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.pod_topology_spread.constraints import SpreadConstraint
from koordinator.scheduler.plugins.pod_topology_spread.domain_counts import DomainCounts
from koordinator.scheduler.plugins.pod_topology_spread.inclusion import Inclusion
from koordinator.scheduler.plugins.pod_topology_spread.matching_pods import MatchingPods
from koordinator.scheduler.plugins.pod_topology_spread.topologies import NAMELESS, Topologies, Topology

_MANY_ROWS = 20
"""One row in so many: looking at all of them anew is cheaper than following."""


@dataclass(slots=True)
class _Part:
    """One constraint with what it is counted by."""

    constraint: SpreadConstraint
    topology: Topology
    matching: int
    """Position in ``Spread.matching``."""
    predicate: NodePredicate | None


@dataclass(slots=True)
class AppliedDelta:
    """What has changed."""

    domains: list[set[int]]
    """For each constraint those of which the counts have changed."""
    rows: set[int]
    """Those that have another number of matching pods, or another node."""


class Spread:
    """The pods that ``constraints`` of ``pod`` are about, by row and by domain. Nodes without some of the keys count
    nowhere, unless they ``need`` not have all ``keys``: then a missing key is as good as an empty one."""

    def __init__(
        self,
        view: ClusterView,
        topologies: Topologies,
        pod: PodInfo,
        constraints: tuple[SpreadConstraint, ...],
        *,
        needs_all_keys: bool = True,
    ) -> None:
        self._view = view
        self._needs_all_keys = needs_all_keys
        inclusion = Inclusion(pod.pod)
        selectors = list(dict.fromkeys(constraint.selector for constraint in constraints))
        namespace = pod.pod.metadata.namespace
        self._matching = [MatchingPods(view.labels, namespace, selector) for selector in selectors]
        self._parts = [
            _Part(
                constraint,
                topologies.topology(constraint.topology_key),
                selectors.index(constraint.selector),
                inclusion.predicate(constraint),
            )
            for constraint in constraints
        ]
        self.counts: list[DomainCounts] = []
        """One for each constraint; empty before ``build``."""
        self.keyed: Mask = np.zeros(0, dtype=np.bool_)
        """The rows of nodes that have all topology keys."""

    @property
    def built(self) -> bool:
        return bool(self.counts)

    def matching(self, index: int) -> MatchingPods:
        """The pods that the constraint of this number matches."""
        return self._matching[self._parts[index].matching]

    def domain(self, index: int) -> Rows:
        """The domain of each row for the constraint of this number; -1 without the key."""
        return _fitted(self._parts[index].topology.domain, self.keyed.shape[0])

    def domain_of(self, index: int, row: int) -> int:
        """The same for one row."""
        return self._parts[index].topology.domain.item(row)

    def domain_name(self, index: int, number: int) -> str:
        """The label's value in a domain, for the constraint of this number."""
        return self._parts[index].topology.name(number)

    def build(self) -> None:
        """Look at all rows."""
        columns = self._view.columns
        capacity = columns.alive.shape[0]
        for matching in self._matching:
            matching.count_all(capacity)
        domains = [_fitted(part.topology.domain, capacity) for part in self._parts]
        self.keyed = np.logical_and.reduce([domain >= 0 for domain in domains])
        eligible = self.keyed if self._needs_all_keys else columns.alive.copy()
        eligible[columns.size :] = False
        self.counts = [
            DomainCounts(
                domain if self._needs_all_keys else np.maximum(domain, NAMELESS),
                self._included(part.predicate, eligible),
                self._matching[part.matching].on_row,
                part.topology.size,
            )
            for part, domain in zip(self._parts, domains, strict=True)
        ]

    def is_much(self, rows: int) -> bool:
        """Whether ``build`` is better than to ``apply_delta`` so many rows."""
        return rows > 1 and rows * _MANY_ROWS > self._view.columns.size

    def apply_delta(self, rows: list[int], of_node: list[int]) -> AppliedDelta:
        """Look at ``rows`` again; those ``of_node`` among them may have another node, or none."""
        capacity = self._view.columns.alive.shape[0]
        if capacity > self.keyed.shape[0]:
            self._widen(capacity)
        delta = AppliedDelta([set() for _ in self._parts], set(of_node))
        for index, matching in enumerate(self._matching):
            for row, before, now in matching.count(rows):
                delta.rows.add(row)
                for part, counts, numbers in zip(self._parts, self.counts, delta.domains, strict=True):
                    if part.matching == index and (number := counts.add(row, now - before)) is not None:
                        numbers.add(number)
        for row in of_node:
            self._place(row, delta.domains)
        return delta

    def _place(self, row: int, touched: list[set[int]]) -> None:
        """The node of ``row`` is another, or gone."""
        node = self._view.columns.nodes[row]
        domains = [part.topology.domain.item(row) for part in self._parts]
        keyed = node is not None and min(domains) >= 0
        self.keyed[row] = keyed
        eligible = node is not None and (keyed or not self._needs_all_keys)
        for part, counts, domain, numbers in zip(self._parts, self.counts, domains, touched, strict=True):
            included = eligible and node is not None and (part.predicate is None or part.predicate(node))
            number = domain if self._needs_all_keys else max(domain, NAMELESS)
            numbers.update(counts.move(row, number, included, self._matching[part.matching].on_row.item(row)))

    def _included(self, predicate: NodePredicate | None, eligible: Mask) -> Mask:
        if predicate is None:
            return eligible.copy()
        included = np.zeros_like(eligible)
        nodes = self._view.columns.nodes
        rows = np.flatnonzero(eligible)
        included[rows] = [node is not None and predicate(node) for node in map(nodes.__getitem__, rows.tolist())]
        return included

    def _widen(self, capacity: int) -> None:
        more = capacity - self.keyed.shape[0]
        self.keyed = np.concatenate([self.keyed, np.zeros(more, dtype=np.bool_)])
        for matching in self._matching:
            matching.widen(capacity)
        for counts in self.counts:
            counts.widen(capacity)


def _fitted(domain: Rows, capacity: int) -> Rows:
    """Exactly ``capacity`` rows; those beyond are in no domain."""
    if domain.shape[0] >= capacity:
        return domain[:capacity]
    return np.concatenate([domain, np.full(capacity - domain.shape[0], -1, dtype=np.intp)])
