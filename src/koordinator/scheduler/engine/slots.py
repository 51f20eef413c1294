"""How many of some pods fit on each node: slots, for plugins that plan for many pods at once.

Pods are placed on a node one after another, each seeing the earlier ones, until one does not fit; every node is
evaluated as if no other had got any of them. Where filters can count identical pods without placing them, as those can
that depend on the columns alone, all nodes are evaluated in a few calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.api.resource_names import PODS
from koordinator.scheduler.engine.adjustment import Adjustment, adjusted
from koordinator.scheduler.engine.cached_results import CachedFilterResults, Failure
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import Ints, NodeColumns, Rows
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import FilterPlugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.engine.simulation import Simulation, nominated_before


@dataclass(frozen=True, slots=True)
class Slots:
    """``counts``: how many of the pods fit on each of ``rows``, the nodes that were considered. ``statuses``: why no
    more fit; nodes that fit all of them are not included."""

    rows: Rows
    counts: Ints
    statuses: tuple[NodeStatus, ...]

    @property
    def by_row(self) -> dict[int, int]:
        """Row -> count."""
        return dict(zip(self.rows.tolist(), self.counts.tolist(), strict=True))


def count_slots(
    state: ClusterState, evaluation: Evaluation, simulation: Simulation, pods: Sequence[PodInfo], *, alike: bool
) -> Slots:
    """``evaluation`` is that of the first of ``pods``, and current. With ``alike``, all pods are of its class."""
    rows = evaluation.rows
    counts = np.zeros(evaluation.feasible.shape[0], dtype=np.int64)
    found: list[tuple[int, Failure | Reason]] = []
    infeasible = evaluation.failures()
    candidates = rows[evaluation.feasible[rows]]
    uids = {pod.uid for pod in pods}
    quick = _without_placing(state, evaluation, candidates, pods[0]) if alike else candidates[:0]
    if quick.shape[0]:
        counts[quick], failed = _bisect(state.view.columns, evaluation, quick, pods[0], len(pods))
        infeasible += failed
    with simulation:
        for row in np.setdiff1d(candidates, quick, assume_unique=True).tolist():
            counts[row], failure = slots_on(simulation, pods, row, uids)
            if failure is not None:
                found.append((row, failure))
    return Slots(rows, counts[rows], statuses_of(pods[0], found, infeasible))


def slots_on(
    simulation: Simulation, pods: Sequence[PodInfo], row: int, ignoring: Collection[str]
) -> tuple[int, Failure | Reason | None]:
    """How many of ``pods``, from the front, fit on ``row`` as it is in the simulation, and why the next one does not.
    Nominations of the pods ``ignoring`` do not count."""
    mark = simulation.mark
    try:
        for count, pod in enumerate(pods):
            failure = simulation.failure(pod, row, ignoring=ignoring)
            if failure is None:
                failure = simulation.place(pod, row)
            if failure is not None:
                return count, failure
    finally:
        simulation.undo(mark)
    return len(pods), None


def statuses_of(
    pod: PodInfo, found: Iterable[tuple[int, Failure | Reason]], failures: Iterable[Failure] = ()
) -> tuple[NodeStatus, ...]:
    """The rows of ``found``, and those of ``failures``, grouped by the rejecting plugin and its reasons."""
    by_cause: dict[tuple[str, tuple[Reason, ...]], list[Rows]] = {}
    for failure in failures:
        reasons = tuple(failure.plugin.reasons(pod, failure.state, failure.code))
        by_cause.setdefault((failure.plugin.name, reasons), []).append(failure.rows)
    for row, cause in found:
        if isinstance(cause, Reason):
            key: tuple[str, tuple[Reason, ...]] = "", (cause,)
        else:
            key = cause.plugin.name, tuple(cause.plugin.reasons(pod, cause.state, cause.code))
        by_cause.setdefault(key, []).append(np.array((row,), dtype=np.intp))
    return tuple(
        NodeStatus(plugin, reasons, np.sort(np.concatenate(rows))) for (plugin, reasons), rows in by_cause.items()
    )


def _without_placing(state: ClusterState, evaluation: Evaluation, rows: Rows, pod: PodInfo) -> Rows:
    """Those of ``rows`` for which all filters can compute directly how many more pods like this one fit."""
    if not evaluation.has_no_overlays or not all(map(_counts_directly, _pod_dependent(evaluation))):
        return rows[:0]
    view = state.view
    others = {row for name in view.nominations.nodes if (row := view.columns.row_of.get(name)) is not None}
    others = {row for row in others if nominated_before(state, pod, row)} | view.columns.discounts.keys()
    return rows[~np.isin(rows, list(others))] if others else rows


def _pod_dependent(evaluation: Evaluation) -> list[CachedFilterResults]:
    return [entry for entry in evaluation.plan.filters if entry.is_pod_dependent]


def _counts_directly(entry: CachedFilterResults) -> bool:
    return entry.plugin.from_columns or type(entry.plugin).filter_last is not FilterPlugin.filter_last


def _bisect(
    columns: NodeColumns, evaluation: Evaluation, rows: Rows, pod: PodInfo, count: int
) -> tuple[Ints, list[Failure]]:
    """How many pods like this one, up to ``count``, fit on each of ``rows``; one does. More pods never make a row pass,
    so that each round is a step of a binary search."""
    filters = _pod_dependent(evaluation)
    fits, above = np.ones(rows.shape[0], dtype=np.int64), np.full(rows.shape[0], count + 1, dtype=np.int64)
    failures: list[Failure] = []
    while (open_ := np.flatnonzero(above - fits > 1)).shape[0]:
        numbers = (fits[open_] + above[open_]) // 2
        passes = ~np.any(_codes(columns, filters, rows[open_], numbers, pod, evaluation), axis=0)
        fits[open_] = np.where(passes, numbers, fits[open_])
        above[open_] = np.where(passes, above[open_], numbers)
    full = np.flatnonzero(fits < count)
    if full.shape[0]:
        codes = _codes(columns, filters, rows[full], above[full], pod, evaluation)
        first = (codes != 0).argmax(axis=0)
        for index, entry in enumerate(filters):
            for code in np.unique(codes[index][first == index]).tolist():
                meant = (first == index) & (codes[index] == code)
                failures.append(Failure(entry.plugin, entry.state, code, rows[full][meant]))
    return fits, failures


def _codes(
    columns: NodeColumns,
    filters: Sequence[CachedFilterResults],
    rows: Rows,
    numbers: Ints,
    pod: PodInfo,
    evaluation: Evaluation,
) -> Ints:
    """The result code of each of ``filters`` for the last of ``numbers`` pods on each of ``rows``; shape (filters,
    rows)."""
    request = pod.request
    adjustments = {}
    for row, number in zip(rows.tolist(), (numbers - 1).tolist(), strict=True):
        amounts = {name: amount * number for name, amount in request.amounts.items()}
        amounts[PODS] = amounts.get(PODS, 0) + number
        non_zero = request.non_zero[0] * number, request.non_zero[1] * number
        adjustments[row] = Adjustment(amounts, non_zero)
    found = []
    with adjusted(columns, adjustments):
        for entry in filters:
            if entry.plugin.from_columns:
                found.append(entry.plugin.filter(evaluation.pod, entry.state, rows))
            else:
                found.append(entry.plugin.filter_last(evaluation.pod, entry.state, rows, numbers))
    return np.array(found, dtype=np.int64).reshape(len(filters), rows.shape[0])
