"""The nodes that come closest to taking a pod, and what each of them lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import NodeColumns, Rows
from koordinator.scheduler.engine.framework import FEASIBLE
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.resource_index import PODS
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.filter_results import FilterResults, Objection

_LOOKED_AT: Final = 64
"""Nodes whose every lack is weighed; those before are picked by what can be read off columns."""


@dataclass(frozen=True, slots=True)
class CloseNode:
    """A node and all that keeps the pod off it."""

    node: str
    objections: tuple[Objection, ...]

    @property
    def distance(self) -> tuple[int, bool, float]:
        """Few plugins first; then those where eviction or time may help; then the least missing."""
        missing = sum(lack.shortfall for objection in self.objections for lack in objection.lacks)
        hopeless = any(reason.unresolvable for objection in self.objections for reason in objection.reasons)
        return len(self.objections), hopeless, missing


def fitting(filter_results: FilterResults, columns: NodeColumns) -> list[str]:
    """The nodes that nobody objects to now."""
    free = ~(filter_results.codes != FEASIBLE).any(axis=0)
    return [columns.names[row] for row in filter_results.rows[free].tolist()]


def closest(filter_results: FilterResults, view: ClusterView, count: int) -> Sequence[CloseNode]:
    """Up to ``count`` nodes, the closest first; nodes that fit are left out."""
    objecting = (filter_results.codes != FEASIBLE).sum(axis=0)
    order = np.lexsort((_missing(filter_results.pod, view.columns, filter_results.rows), objecting))
    candidates = [index for index in order.tolist() if objecting[index]][:_LOOKED_AT]
    names = view.columns.names
    found = [
        CloseNode(names[int(filter_results.rows[index])], filter_results.objections(index)) for index in candidates
    ]
    return sorted(found, key=lambda each: (each.distance, each.node))[:count]


def _missing(pod: PodInfo, columns: NodeColumns, rows: Rows) -> NDArray[np.float64]:
    """The sum over resources of what is not free, as shares of what is requested."""
    columns.fit_resources()
    missing = np.zeros(rows.shape[0])
    for column, amount in {**pod.request.amounts, PODS: 1}.items():
        free = columns.allocatable[rows, column] - columns.requested[rows, column]
        missing += np.maximum(amount - free, 0) / amount
    return missing
