"""How many pods on each row a selector matches, kept current row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from koordinator.model.label_selector import CompiledSelector
from koordinator.scheduler.engine.columns import Ints
from koordinator.scheduler.engine.label_groups import LabelGroups

_REMEMBERED: Final = 4096
_WORTH_AN_ARRAY: Final = 16


class MatchingPods:
    """Pods of one namespace that are not being deleted. An empty selector counts none, as upstream has it, although it
    matches the pod itself."""

    def __init__(self, labels: LabelGroups, namespace: str, selector: CompiledSelector) -> None:
        self._labels = labels
        self._namespace = namespace
        self._selector = selector
        self._none = selector.empty or selector.nothing
        self._matches: dict[int, bool] = {}
        self.on_row: Ints = np.zeros(0, dtype=np.int64)

    def count_all(self, capacity: int) -> None:
        """Look at every row; ``capacity`` is how many there may be."""
        counts = self.on_row = np.zeros(capacity, dtype=np.int64)
        if self._none:
            return
        for group in self._labels.candidates((self._namespace,), self._selector.required):
            if not self._is_match(group.number):
                continue
            if len(group.rows) >= _WORTH_AN_ARRAY:
                rows = np.fromiter(group.rows.keys(), dtype=np.intp, count=len(group.rows))
                counts[rows] += np.fromiter(group.rows.values(), dtype=np.int64, count=len(group.rows))
            else:
                for row, number in group.rows.items():
                    counts[row] += number

    def count(self, rows: Iterable[int]) -> list[tuple[int, int, int]]:
        """Look at ``rows`` again; returns (row, how many there were, how many there are) where that is not the same."""
        changed: list[tuple[int, int, int]] = []
        if self._none:
            return changed
        groups_on, known, counts = self._labels.on_row, self._matches, self.on_row
        for row in rows:
            now = 0
            for group, pods in groups_on(row).items():
                match = known.get(group)
                if self._is_match(group) if match is None else match:
                    now += pods
            before = counts.item(row)
            if now != before:
                counts[row] = now
                changed.append((row, before, now))
        return changed

    def widen(self, capacity: int) -> None:
        """Make room for rows."""
        more = capacity - self.on_row.shape[0]
        self.on_row = np.concatenate([self.on_row, np.zeros(more, dtype=np.int64)])

    def _is_match(self, number: int) -> bool:
        group = self._labels.group(number)
        match = group.namespace == self._namespace and not group.terminating and self._selector.matches(group.labels)
        if len(self._matches) >= _REMEMBERED:
            self._matches.clear()
        self._matches[number] = match
        return match
