"""Who ruled out which nodes, read from the reason codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from koordinator.scheduler.engine.columns import Rows
from koordinator.scheduler.engine.findings import FilterFindings
from koordinator.scheduler.engine.framework import FEASIBLE, FilterPlugin


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows that the same plugin ruled out with the same code."""

    plugin: FilterPlugin
    state: Any
    code: int
    rows: Rows


def failures(filters: Sequence[FilterFindings], rows: Rows) -> list[Failure]:
    """``rows``, none of which is feasible, grouped by the first plugin that rules them out and its code."""
    if not rows.size or not filters:
        return []
    of_rows = np.stack([entry.values[rows] for entry in filters])
    first = (of_rows != FEASIBLE).argmax(axis=0)
    code = of_rows[first, np.arange(rows.size)]
    groups: list[Failure] = []
    for index in np.unique(first):
        entry, of_plugin = filters[index], first == index
        groups.extend(
            Failure(entry.plugin, entry.state, int(value), rows[of_plugin & (code == value)])
            for value in np.unique(code[of_plugin])
        )
    return groups
