"""The class states of Filter and Score: the affinity and anti-affinity of a class of pods, and that of existing pods
towards it, required for Filter and preferred for Score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE, Reason
from koordinator.scheduler.engine.plugin_forms import SomeRows, chosen, of_rows, zeros
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.inter_pod_affinity.existing_terms import ExistingTerms
from koordinator.scheduler.plugins.inter_pod_affinity.term_counters import (
    OwnTerms,
    TermCounter,
    carriers,
    each_once,
    matching_all,
    matching_any,
    weight_of,
)
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Term
from koordinator.scheduler.plugins.node_labels import NO_DOMAIN, Topologies

AFFINITY: Final = 1
ANTI_AFFINITY: Final = 2
OF_EXISTING: Final = 3
REASONS: Final[Mapping[int, Reason]] = {
    AFFINITY: Reason("node(s) didn't match pod affinity rules", unresolvable=True),
    ANTI_AFFINITY: Reason("node(s) didn't match pod anti-affinity rules"),
    OF_EXISTING: Reason("node(s) didn't satisfy existing pods anti-affinity rules"),
}
"""Code -> reason. If several apply, the smallest code is the result, since upstream checks them in this order."""
_ALL: Final = slice(None)


class FilterState:
    """The Filter results of one class of pods for all node rows."""

    def __init__(
        self,
        view: ClusterView,
        topologies: Topologies,
        own: OwnTerms,
        existing: ExistingTerms,
        blocking: frozenset[Term],
    ) -> None:
        self._columns = view.columns
        self._matches_itself = own.matches_itself
        self._affinity = TermCounter(topologies, matching_all(view.labels, own.affinity))
        self._against = (
            (ANTI_AFFINITY, TermCounter(topologies, matching_any(view.labels, own.anti_affinity, each_once))),
            (OF_EXISTING, TermCounter(topologies, carriers(existing, blocking, each_once))),
        )
        self._counters = [each for each in (self._affinity, *(counter for _, counter in self._against)) if each.sources]

    def codes(self, rows: SomeRows) -> Any:
        """The code of each row, see REASONS; FEASIBLE where the pod fits."""
        codes = zeros(rows)
        for code, counter in reversed(self._against):
            for sums in counter.sums:
                # The rows follow no pattern: np.where is several times as fast as masked assignment.
                codes = chosen(sums.at(rows) > 0, code, codes)
        for sums in self._affinity.sums:
            alone = self._first_of_its_kind
            near = of_rows(sums.topology.domain, rows) != NO_DOMAIN if alone else sums.at(rows) > 0
            codes = chosen(near, codes, AFFINITY)
        return codes

    def near(self, row: int) -> Mapping[str, list[str] | None]:
        """Topology key of the pod's affinity -> None if a pod that matches the affinity is in the row's domain, else
        the label values of the domains with such pods."""
        first = self._first_of_its_kind
        return {
            sums.topology.key: None if first or sums.at(row) > 0 else sums.occupied_values()
            for sums in self._affinity.sums
        }

    def apply_delta(self, rows: Rows) -> Rows | None:
        """Update the state after changes on ``rows``. Return other rows whose results may have changed; None if
        none."""
        changed, first = rows.tolist(), self._first_of_its_kind
        reached: set[int] = set()
        for counter in self._counters:
            if counter.apply_delta(changed):
                for sums in counter.sums:
                    reached |= sums.turned_rows()
        if first != self._first_of_its_kind:
            return np.flatnonzero(self._columns.alive[: self._columns.size])
        reached.difference_update(changed)
        return np.array(sorted(reached), dtype=np.intp) if reached else None

    @property
    def _first_of_its_kind(self) -> bool:
        """Whether the pod's affinity matches itself and no other pod: then it fits on any node with the topology
        labels, since otherwise the first pod of a group with affinity to itself could never start."""
        return self._matches_itself and all(sums.empty for sums in self._affinity.sums)


class ScoreState:
    """The Score results of one class of pods for all node rows."""

    def __init__(
        self,
        view: ClusterView,
        topologies: Topologies,
        own: OwnTerms,
        existing: ExistingTerms,
        preferring: frozenset[Term],
    ) -> None:
        matching = matching_any(view.labels, own.preferred, weight_of)
        self._counter = TermCounter(topologies, matching, carriers(existing, preferring, weight_of))
        self._normalized: Ints = np.zeros(0, dtype=np.int64)
        """Row -> the raw score from which its current score was computed."""

    def apply_delta(self, rows: Rows) -> bool:
        """Update the state after changes on ``rows``. Return whether the score of any row may have changed."""
        changed = rows.tolist()
        if self._counter.apply_delta(changed):
            return True
        known = self._normalized
        return any(row >= known.shape[0] or self.raw(row) != known[row] for row in changed)

    def raw(self, rows: SomeRows) -> Any:
        """The raw score of each row: the summed weights of all domains that it is in."""
        total = zeros(rows)
        for sums in self._counter.sums:
            total += sums.at(rows)
        return total

    def scores(self, feasible: Mask) -> Ints:
        """The normalized scores: 0 for the lowest feasible row, 100 for the highest, truncated to integers as upstream.
        The scores of rows that are not feasible are undefined."""
        raw = self._normalized = self.raw(np.arange(feasible.shape[0]))
        chosen = raw[feasible]
        if not chosen.shape[0]:
            return np.zeros_like(raw)
        lowest, highest = int(chosen.min()), int(chosen.max())
        if lowest == highest:
            return np.zeros_like(raw)
        scaled: Ints = (float(MAX_NODE_SCORE) * ((raw - lowest) / float(highest - lowest))).astype(np.int64)
        return scaled
