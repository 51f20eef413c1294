"""The current spread of the pods that a pod's constraints match, updated row by row.

It is built at the first evaluation rather than when it is created: a class of pods may be created some events before it
is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from koordinator.api.pod import Pod
from koordinator.model.label_selector import CompiledSelector
from koordinator.model.node_selector import NodePredicate, required_predicate
from koordinator.model.tolerations import untolerated
from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import grown
from koordinator.scheduler.engine.view import ClusterView, LabelGroup, LabelGroups, MatchingPods
from koordinator.scheduler.plugins.node_labels import NAMELESS, NO_DOMAIN, Topologies, Topology
from koordinator.scheduler.plugins.pod_topology_spread.constraints import SpreadConstraint


def _inclusion(constraint: SpreadConstraint, pod: Pod) -> NodePredicate | None:
    """Whether a node counts, by nodeAffinityPolicy and nodeTaintsPolicy; None if every node does."""
    affinity = required_predicate(pod) if constraint.honors_affinity else None
    if not constraint.honors_taints:
        return affinity
    tolerations = pod.spec.tolerations
    return lambda node: (affinity is None or affinity(node)) and not any(untolerated(tolerations, node.spec.taints))


def _matching_pods(labels: LabelGroups, namespace: str, selector: CompiledSelector) -> MatchingPods:
    """The pods of one namespace that match a selector and are not being deleted. As upstream, an empty selector counts
    none, although it matches the pod itself."""
    counts = not (selector.empty or selector.nothing)

    def candidates() -> Iterable[LabelGroup]:
        return labels.candidates((namespace,), selector.required) if counts else ()

    def matches(group: LabelGroup) -> bool:
        return counts and group.namespace == namespace and not group.terminating and selector.matches(group.labels)

    return MatchingPods(labels, candidates, matches)


ABSENT: Final = 2**31 - 1
"""The value of a domain without a counted node in the minimum over domains; larger than any number of pods."""


class DomainCounts:
    """Counts nodes and matching pods by domain, for one constraint. A row contributes its pods if its node counts."""

    def __init__(self, domain: Rows, counts: Mask, pods: Ints, size: int) -> None:
        """By row: ``domain``, ``counts`` (whether the node counts) and ``pods``. ``size`` is the topology's."""
        self.domain = domain.copy()
        """The domain of each row."""
        self._counts = counts
        places = 2 * size + 16
        counting = np.flatnonzero(counts)
        self.nodes: Ints = np.bincount(domain[counting], minlength=places).astype(np.int64)
        """Domain -> number of nodes that count."""
        self.pods: Ints = np.bincount(domain[counting], weights=pods[counting], minlength=places).astype(np.int64)
        """Domain -> number of pods on these nodes."""
        self._or_absent: Ints = np.where(self.nodes > 0, self.pods, ABSENT)
        self.present = int(np.count_nonzero(self.nodes))
        """The number of domains with a node that counts."""

    @property
    def least(self) -> int:
        """The minimum number of pods over domains with a node that counts; ABSENT if there is no such domain."""
        return int(self._or_absent.min())

    @property
    def emptiest(self) -> int:
        """The number of a domain with ``least`` pods."""
        return int(self._or_absent.argmin())

    def add(self, row: int, pods: int) -> int | None:
        """Add ``pods`` to the row. Return the domain whose count changes; None if the node does not count."""
        if not self._counts.item(row):
            return None
        domain = self.domain.item(row)
        self._add(domain, 0, pods)
        return domain

    def move(self, row: int, domain: int, counts: bool, pods: int) -> list[int]:
        """Set the domain of the row, on which ``pods`` are, and whether its node counts. Return the domains whose
        counts change."""
        before, counted = self.domain.item(row), self._counts.item(row)
        if before == domain and counted == counts:
            return []
        if domain >= self.nodes.shape[0] - 1:
            self._grow(domain)
        self.domain[row] = domain
        self._counts[row] = counts
        if counted:
            self._add(before, -1, -pods)
        if counts:
            self._add(domain, 1, pods)
        return [number for number, involved in ((before, counted), (domain, counts)) if involved]

    def _add(self, domain: int, nodes: int, pods: int) -> None:
        had, now = self.nodes.item(domain), self.nodes.item(domain) + nodes
        self.nodes[domain] = now
        self.pods[domain] += pods
        self._or_absent[domain] = self.pods[domain] if now else ABSENT
        self.present += (now > 0) - (had > 0)

    def _grow(self, domain: int) -> None:
        places = (self.nodes.shape[0] + domain + 16,)
        self.nodes, self.pods = grown(self.nodes, places), grown(self.pods, places)
        self._or_absent = grown(self._or_absent, places, fill=ABSENT)

    def widen(self, capacity: int) -> None:
        """Extend the arrays by row to ``capacity``."""
        self.domain = grown(self.domain, (capacity,), fill=NO_DOMAIN)
        self._counts = grown(self._counts, (capacity,))


_MANY_ROWS = 20
"""If more than one row in this many has changed, rebuilding from all rows is cheaper than applying the delta."""


@dataclass(slots=True)
class _Part:
    """One constraint with the topology, the counter and the node predicate by which it is counted."""

    constraint: SpreadConstraint
    topology: Topology
    matching: int
    """Position of the selector in ``Spread._matching``."""
    predicate: NodePredicate | None


class Spread:
    """The numbers of pods that match the ``constraints`` of ``pod``, by row and by domain. With ``needs_all_keys``,
    nodes that lack any topology key do not count; otherwise a missing key counts as an empty value."""

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
        selectors = list(dict.fromkeys(constraint.selector for constraint in constraints))
        namespace = pod.pod.metadata.namespace
        self._matching = [_matching_pods(view.labels, namespace, selector) for selector in selectors]
        self._pods: list[Ints] = []
        """By matched selector and row, how many pods match."""
        self._parts = [
            _Part(
                constraint,
                topologies[constraint.topology_key],
                selectors.index(constraint.selector),
                _inclusion(constraint, pod.pod),
            )
            for constraint in constraints
        ]
        self.counts: list[DomainCounts] = []
        """The counts of each constraint; empty before ``build``."""
        self.keyed: Mask = np.zeros(0, dtype=np.bool_)
        """The rows of nodes that have all topology keys."""

    @property
    def built(self) -> bool:
        return bool(self.counts)

    def pods(self, index: int) -> Ints:
        """Row -> number of pods that match the constraint of this index."""
        return self._pods[self._parts[index].matching]

    def domain(self, index: int) -> Rows:
        """The domain of each row for the constraint of this index; -1 without the key."""
        return _fitted(self._parts[index].topology.domain, self.keyed.shape[0])

    def domain_of(self, index: int, row: int) -> int:
        """The domain of one row; -1 without the key."""
        return self._parts[index].topology.domain.item(row)

    def domain_name(self, index: int, number: int) -> str:
        """The label's value in a domain, for the constraint of this index."""
        return self._parts[index].topology.name(number)

    def build(self) -> None:
        """Count all rows."""
        columns = self._view.columns
        capacity = columns.alive.shape[0]
        self._pods = [np.zeros(capacity, dtype=np.int64) for _ in self._matching]
        for pods, matching in zip(self._pods, self._matching, strict=True):
            found = matching.everywhere()
            pods[list(found)] = list(found.values())
        domains = [_fitted(part.topology.domain, capacity) for part in self._parts]
        self.keyed = np.logical_and.reduce([domain >= 0 for domain in domains])
        eligible = self.keyed if self._needs_all_keys else columns.alive.copy()
        eligible[columns.size :] = False
        self.counts = [
            DomainCounts(
                domain if self._needs_all_keys else np.maximum(domain, NAMELESS),
                self._included(part.predicate, eligible),
                self._pods[part.matching],
                part.topology.size,
            )
            for part, domain in zip(self._parts, domains, strict=True)
        ]

    def is_much(self, rows: int) -> bool:
        """Whether ``build`` is cheaper than ``apply_delta`` for this many rows."""
        return rows > 1 and rows * _MANY_ROWS > self._view.columns.size

    def apply_delta(self, rows: list[int], of_node: list[int]) -> tuple[list[set[int]], set[int]]:
        """Update the counts after changes on ``rows``; those in ``of_node`` may have another node, or none. Return for
        each constraint the domains whose counts have changed, and the rows whose number of matching pods, or whose
        node, has."""
        capacity = self._view.columns.alive.shape[0]
        if capacity > self.keyed.shape[0]:
            self._widen(capacity)
        domains: list[set[int]] = [set() for _ in self._parts]
        changed = set(of_node)
        for index, (pods, matching) in enumerate(zip(self._pods, self._matching, strict=True)):
            for row in rows:
                before, now = pods.item(row), matching.on_row(row)
                if now == before:
                    continue
                pods[row] = now
                changed.add(row)
                for part, counts, numbers in zip(self._parts, self.counts, domains, strict=True):
                    if part.matching == index and (number := counts.add(row, now - before)) is not None:
                        numbers.add(number)
        for row in of_node:
            self._place(row, domains)
        return domains, changed

    def _place(self, row: int, touched: list[set[int]]) -> None:
        """Update the domains of ``row``, whose node has changed or was deleted. Adds changed domains to ``touched``."""
        node = self._view.columns.nodes[row]
        domains = [part.topology.domain.item(row) for part in self._parts]
        keyed = node is not None and min(domains) >= 0
        self.keyed[row] = keyed
        eligible = node is not None and (keyed or not self._needs_all_keys)
        for part, counts, domain, numbers in zip(self._parts, self.counts, domains, touched, strict=True):
            included = eligible and node is not None and (part.predicate is None or part.predicate(node))
            number = domain if self._needs_all_keys else max(domain, NAMELESS)
            numbers.update(counts.move(row, number, included, self._pods[part.matching].item(row)))

    def _included(self, predicate: NodePredicate | None, eligible: Mask) -> Mask:
        if predicate is None:
            return eligible.copy()
        included = np.zeros_like(eligible)
        nodes = self._view.columns.nodes
        rows = np.flatnonzero(eligible)
        included[rows] = [node is not None and predicate(node) for node in map(nodes.__getitem__, rows.tolist())]
        return included

    def _widen(self, capacity: int) -> None:
        self.keyed = grown(self.keyed, (capacity,))
        self._pods = [grown(pods, (capacity,)) for pods in self._pods]
        for counts in self.counts:
            counts.widen(capacity)


def _fitted(domain: Rows, capacity: int) -> Rows:
    """The array cut or extended to ``capacity`` rows; added rows are in no domain."""
    return domain[:capacity] if domain.shape[0] >= capacity else grown(domain, (capacity,), fill=NO_DOMAIN)
