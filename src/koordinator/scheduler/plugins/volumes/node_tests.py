"""Tests of a node's labels, each evaluated once a row and remembered until the labels change.

Thousands of pods need the same of all nodes: may this volume be used here, may one be made here. A volume on the disk
of a node names that node by its host name; such a test fails for all other rows without being evaluated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.api.node import Node
from koordinator.api.pod import NodeSelector, NodeSelectorTerm
from koordinator.model.node_selector import NodePredicate, term_predicate
from koordinator.scheduler.engine.columns import Mask, NodeColumns, Rows

HOST_NAME: Final = "kubernetes.io/hostname"
_NOT_EVALUATED: Final = -1
_CELLS: Final = 2_000_000
_NOBODY: Final[frozenset[str]] = frozenset()


class LabelRows:
    """Which labels each row has had since when: every change of them gives the row a new version."""

    def __init__(self, columns: NodeColumns) -> None:
        self.columns = columns
        self._known: dict[int, Mapping[str, str]] = {}
        self._of_host: dict[str, set[int]] = {}
        self.versions: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    def set_node(self, row: int, node: Node) -> None:
        """The node of ``row`` is new or changed; may be called any number of times."""
        labels = node.metadata.labels
        before = self._known.get(row)
        if before is labels or before == labels:
            return
        self._forget_host(row, before)
        self._known[row] = labels
        self._of_host.setdefault(labels.get(HOST_NAME, ""), set()).add(row)
        self._move_on(row)

    def remove_node(self, row: int) -> None:
        """``row`` is free."""
        if row in self._known:
            self._forget_host(row, self._known.pop(row))
            self._move_on(row)

    def labels(self, row: int) -> Mapping[str, str] | None:
        """None for a free row."""
        return self._known.get(row)

    def on_hosts(self, hosts: frozenset[str]) -> list[int]:
        """The rows whose nodes bear one of these host names."""
        return sorted(row for host in hosts for row in self._of_host.get(host, ()))

    def _forget_host(self, row: int, labels: Mapping[str, str] | None) -> None:
        if labels is not None:
            rows = self._of_host[labels.get(HOST_NAME, "")]
            rows.discard(row)
            if not rows:
                del self._of_host[labels.get(HOST_NAME, "")]

    def _move_on(self, row: int) -> None:
        self.fit(row + 1)
        self.versions[row] += 1

    def fit(self, size: int) -> None:
        """Have a version for at least so many rows."""
        known = self.versions.shape[0]
        if known < size:
            larger = np.zeros(max(64, 2 * known, size), dtype=np.int32)
            larger[:known] = self.versions
            self.versions = larger


class NodeTest:
    """One test. ``hosts``: no node passes that bears none of these host names."""

    def __init__(self, rows: LabelRows, passes: NodePredicate, hosts: frozenset[str] | None = None) -> None:
        self._rows = rows
        self._passes = passes
        self._hosts = hosts
        self._results: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        """Twice the version of the row's labels when the test ran, plus one if it passed."""

    def evaluate(self, rows: Rows) -> Mask:
        """Whether each of ``rows`` passes."""
        self._fit()
        versions = self._rows.versions[rows]
        stale = rows[self._results[rows] >> 1 != versions]
        for row in stale.tolist():
            self._evaluate(row)
        return (self._results[rows] & 1).astype(np.bool_)

    def evaluate_one(self, row: int) -> bool:
        """The same for a single row."""
        self._fit()
        if int(self._results[row]) >> 1 != int(self._rows.versions[row]):
            self._evaluate(row)
        return bool(self._results[row] & 1)

    def _evaluate(self, row: int) -> None:
        node = self._rows.columns.nodes[row]
        passed = node is not None and self._passes(node)
        self._results[row] = int(self._rows.versions[row]) * 2 + passed

    def _fit(self) -> None:
        known, size = self._results.shape[0], self._rows.columns.size
        if known >= size:
            return
        self._rows.fit(size)
        wanted = self._rows.versions.shape[0]
        larger = np.full(wanted, _NOT_EVALUATED, dtype=np.int32)
        if self._hosts is not None:
            # The test need not run for a node with another host name; a change of its labels makes it run again.
            larger[:size] = self._rows.versions[:size] * 2
            larger[self._rows.on_hosts(self._hosts)] = _NOT_EVALUATED
        larger[:known] = self._results
        self._results = larger


class NodeTests:
    """Tests by their content; those not used for the longest time are dropped first."""

    def __init__(self, columns: NodeColumns) -> None:
        self.rows = LabelRows(columns)
        self._columns = columns
        self._tests: OrderedDict[Hashable, NodeTest] = OrderedDict()

    def get(self, key: Hashable, passes: Callable[[], NodePredicate], hosts: frozenset[str] | None = None) -> NodeTest:
        """The test ``key``; ``passes`` is compiled when it is new."""
        test = self._tests.get(key)
        if test is not None:
            self._tests.move_to_end(key)
            return test
        while self._tests and (len(self._tests) + 1) * max(1, self._columns.size) > _CELLS:
            self._tests.popitem(last=False)
        test = self._tests[key] = NodeTest(self.rows, passes(), hosts)
        return test


def volume_predicate(selector: NodeSelector) -> NodePredicate:
    """A volume's node affinity: any of the terms. Their conditions on fields of the node are not checked: upstream
    passes them a node with nothing but labels (component-helpers, CheckNodeAffinity)."""
    terms = [compiled for term in selector.node_selector_terms if (compiled := _by_labels(term)) is not None]
    return lambda node: any(term(node) for term in terms)


def _by_labels(term: NodeSelectorTerm) -> NodePredicate | None:
    if term.match_fields and not term.match_expressions:
        return lambda node: True
    return term_predicate(NodeSelectorTerm(match_expressions=term.match_expressions))


def hosts_of(selector: NodeSelector) -> frozenset[str] | None:
    """The only host names that a matching node can bear; None when some term allows any."""
    hosts = _NOBODY
    for term in selector.node_selector_terms:
        named = [set(each.values) for each in term.match_expressions if each.key == HOST_NAME and each.operator == "In"]
        if not named:
            return None
        hosts |= set.intersection(*named)
    return hosts
