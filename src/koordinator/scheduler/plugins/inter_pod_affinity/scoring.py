"""Scores for one class of pods: weights by topology domain, of its own preferences and of those of pods on nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.engine.label_groups import LabelGroups
from koordinator.scheduler.plugins.inter_pod_affinity.domains import Topologies
from koordinator.scheduler.plugins.inter_pod_affinity.existing_terms import ExistingTerms
from koordinator.scheduler.plugins.inter_pod_affinity.tallies import Carriers, Matching, OwnTerm, Tally, weight_of
from koordinator.scheduler.plugins.inter_pod_affinity.terms import Term


class ScoreState:
    """What Score knows of all rows for one class of pods."""

    def __init__(
        self,
        topologies: Topologies,
        *,
        preferred: Sequence[OwnTerm],
        preferring: frozenset[Term],
        labels: LabelGroups,
        existing: ExistingTerms,
    ) -> None:
        self._tally = Tally(
            topologies, Matching(labels, preferred, weight_of), Carriers(existing, preferring, weight_of)
        )
        self._normalized: Ints = np.zeros(0, dtype=np.int64)
        """Row -> the raw score that its present one follows from."""

    def apply_delta(self, rows: Rows) -> bool:
        """Something has changed on ``rows``; returns whether the scale or the score of some row has."""
        changed = rows.tolist()
        if self._tally.apply_delta(changed):
            return True
        known = self._normalized
        return any(row >= known.shape[0] or self.raw_of(row) != known[row] for row in changed)

    def raw(self, rows: Rows) -> Ints:
        """The sum of the weights of all domains that a row is in."""
        total = np.zeros(rows.shape[0], dtype=np.int64)
        for _, sums in self._tally.sums:
            total += sums.at(rows)
        return total

    def raw_of(self, row: int) -> int:
        """The same for a single row."""
        return sum(sums.at_row(row) for _, sums in self._tally.sums)

    def scores(self, feasible: Mask) -> Ints:
        """0 for the lowest feasible row, 100 for the highest, cut to integers as upstream does it; rows that are not
        feasible get whatever that gives."""
        raw = self._normalized = self.raw(np.arange(feasible.shape[0]))
        chosen = raw[feasible]
        if not chosen.shape[0]:
            return np.zeros_like(raw)
        lowest, highest = int(chosen.min()), int(chosen.max())
        if lowest == highest:
            return np.zeros_like(raw)
        scaled: Ints = (float(MAX_NODE_SCORE) * ((raw - lowest) / float(highest - lowest))).astype(np.int64)
        return scaled
