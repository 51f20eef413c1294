"""How many of some pods fit on each node: slots, for plugins that plan for many pods at once.

Pods are placed on a node one after another, each seeing the earlier ones, until one does not fit; every node is
evaluated as if no other had got any of them. Where filters can count identical pods without placing them, as those can
that depend on the columns alone, all nodes are evaluated in a few calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.scheduler.engine.cached_results import CachedFilterResults, Failure, failures
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import FilterPlugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.engine.simulation import Simulation, nominated_before
from koordinator.scheduler.engine.view import ClusterView


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
    view: ClusterView, evaluation: Evaluation, simulation: Simulation, pods: Sequence[PodInfo], *, alike: bool
) -> Slots:
    """``evaluation`` is that of the first of ``pods``, and current. With ``alike``, all pods are of its class."""
    rows = evaluation.rows
    counts = np.zeros(evaluation.feasible.shape[0], dtype=np.int64)
    found: list[tuple[int, Failure | Reason]] = []
    infeasible = evaluation.failures()
    candidates = rows[evaluation.feasible[rows]]
    uids = {pod.uid for pod in pods}
    quick = _without_placing(view, evaluation, candidates, pods[0]) if alike else candidates[:0]
    if quick.shape[0]:
        counts[quick], failed = _bisect(view, evaluation, quick, pods[0], len(pods))
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
            failure = simulation.admit(pod, row, ignoring=ignoring)
            if failure is not None:
                return count, failure
    finally:
        simulation.undo(mark)
    return len(pods), None


def statuses_of(
    pod: PodInfo, found: Iterable[tuple[int, Failure | Reason]], others: Iterable[Failure] = ()
) -> tuple[NodeStatus, ...]:
    """The rows of ``found``, and those of ``others``, grouped by the rejecting plugin and its reasons."""
    by_cause: dict[tuple[str, tuple[Reason, ...]], list[Rows]] = {}
    for failure in others:
        by_cause.setdefault((failure.plugin.name, failure.reasons(pod)), []).append(failure.rows)
    for row, cause in found:
        key = ("", (cause,)) if isinstance(cause, Reason) else (cause.plugin.name, cause.reasons(pod))
        by_cause.setdefault(key, []).append(np.array((row,), dtype=np.intp))
    return tuple(
        NodeStatus(plugin, reasons, np.sort(np.concatenate(rows))) for (plugin, reasons), rows in by_cause.items()
    )


def _without_placing(view: ClusterView, evaluation: Evaluation, rows: Rows, pod: PodInfo) -> Rows:
    """Those of ``rows`` for which all filters can compute directly how many more pods like this one fit."""
    if evaluation.overlaid or not all(map(_counts_directly, _pod_dependent(evaluation))):
        return rows[:0]
    others = {row for name in view.nominations.nodes if (row := view.columns.row_of.get(name)) is not None}
    others = {row for row in others if nominated_before(view, pod, row)} | view.columns.discounts.keys()
    return rows[~np.isin(rows, list(others))] if others else rows


def _pod_dependent(evaluation: Evaluation) -> list[CachedFilterResults]:
    return [entry for entry in evaluation.plan.filters if entry.is_pod_dependent]


def _counts_directly(entry: CachedFilterResults) -> bool:
    return entry.plugin.from_columns or type(entry.plugin).filter_last is not FilterPlugin.filter_last


def _bisect(
    view: ClusterView, evaluation: Evaluation, rows: Rows, pod: PodInfo, count: int
) -> tuple[Ints, list[Failure]]:
    """How many pods like this one, up to ``count``, fit on each of ``rows``; one does. More pods never make a row pass,
    so that each round is a step of a binary search."""
    filters = _pod_dependent(evaluation)
    fits, above = np.ones(rows.shape[0], dtype=np.int64), np.full(rows.shape[0], count + 1, dtype=np.int64)
    there = np.zeros(rows.shape[0], dtype=np.int64)
    with view.simulate() as journal:

        def codes_of_last(which: Rows, numbers: Ints) -> Ints:
            """The code of each filter for the last of ``numbers`` pods on each of ``rows[which]``; shape (filters,
            which)."""
            for row, more in zip(rows[which].tolist(), (numbers - 1 - there[which]).tolist(), strict=True):
                journal.add_request(row, pod.request.counted, pod.request.non_zero, more)
            there[which] = numbers - 1
            found = [_codes(entry, evaluation.pod, rows[which], numbers) for entry in filters]
            return np.array(found, dtype=np.int64).reshape(len(filters), which.shape[0])

        while (open_ := np.flatnonzero(above - fits > 1)).shape[0]:
            numbers = (fits[open_] + above[open_]) // 2
            passes = ~np.any(codes_of_last(open_, numbers), axis=0)
            fits[open_] = np.where(passes, numbers, fits[open_])
            above[open_] = np.where(passes, above[open_], numbers)
        full = np.flatnonzero(fits < count)
        if not full.shape[0]:
            return fits, []
        codes = codes_of_last(full, above[full])
    return fits, failures(filters, rows[full], codes)


def _codes(entry: CachedFilterResults, pod: PodInfo, rows: Rows, numbers: Ints) -> Ints:
    if entry.plugin.from_columns:
        return entry.plugin.filter(pod, entry.state, rows)
    return entry.plugin.filter_last(pod, entry.state, rows, numbers)
