"""An attempt for which no node passed, as PostFilter plugins see it: the reasons, and simulations without some pods."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

from koordinator.scheduler.engine.binding_points import CycleState
from koordinator.scheduler.engine.cached_results import CachedFilterResults, Failure
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.journal import Request, total
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus, Predicate
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.simulation import (
    Simulation,
    first_failure,
    nominated_allocations,
    nominated_before,
    reasons_of,
)
from koordinator.scheduler.engine.slots import statuses_of

_MAX_KEYS: Final = 16
"""Identical pods use few different keys at a time, but each new version of a result's input makes a new key."""


class RowCache:
    """Key -> row -> result. The results of a row are dropped when the row changes."""

    def __init__(self) -> None:
        self._results: OrderedDict[Hashable, dict[int, Any]] = OrderedDict()
        self._version = -1

    def results(self, key: Hashable, columns: NodeColumns) -> dict[int, Any]:
        """The cached results under ``key`` at the present version; the caller adds to them. Valid until something
        changes."""
        self._forget_changed(columns)
        known = self._results.setdefault(key, {})
        self._results.move_to_end(key)
        if len(self._results) > _MAX_KEYS:
            self._results.popitem(last=False)
        return known

    def _forget_changed(self, columns: NodeColumns) -> None:
        if self._version == columns.version:
            return
        changed = columns.changes_since(self._version, columns.size)
        if changed is None:
            self._results.clear()
        else:
            for known in self._results.values():
                for row in changed:
                    known.pop(row, None)
        self._version = columns.version


T = TypeVar("T")


class Attempt:
    """Implements FailedAttempt for one pod and the evaluation of its class."""

    def __init__(
        self,
        profile: Profile,
        state: ClusterState,
        evaluation: Evaluation,
        cycle: CycleState,
        key: Hashable,
        row_cache: RowCache,
        check_time: Callable[[], None] = lambda: None,
    ) -> None:
        """``key`` is that of the class. ``check_time`` raises when the decision has taken too long, as searching
        thousands of nodes for victims may."""
        self.nominated_to_others: Sequence[int] = ()
        """The rows where the pod would fit if no other pod were nominated there."""
        self.only: str | None = None
        """The only node that was considered, if a FindOneNode plugin chose it."""
        self.chosen_by = ""
        """The name of that plugin."""
        self.involved: Collection[str] = ()
        """Plugins that contributed to ``refusal`` beside the one that it names."""
        self.state = cycle
        self.refusal: tuple[str, Reason] | None = None
        """The plugin that ends the attempt although nodes may pass, and its reason."""
        self.profile = profile
        self.cluster = state
        self._view = state.view
        self.evaluation = evaluation
        self.pod = cycle.pod
        self._key = key
        self._row_cache = row_cache
        self._check_time = check_time

    def has_capacity(self, row: int) -> bool:
        """Whether the pod fits on a feasible row beside the pods that are nominated to it before this one."""
        view = self._view
        return view.nominations.is_empty or not nominated_before(view, self.pod, row) or self.fits(row, ())

    @cached_property
    def statuses(self) -> Sequence[NodeStatus]:
        """See FailedAttempt."""
        rejection, rows_of = self.refusal or self.evaluation.plan.rejection, self._view.columns.row_of
        if rejection is not None:
            plugin, reason = rejection
            return (NodeStatus(plugin, (reason,), np.array(list(rows_of.values()), dtype=np.intp)),)
        if self.only is not None:
            row = rows_of.get(self.only)
            failure = self.evaluation.failure_of(row) if row is not None else None
            return statuses_of(self.pod, (), (failure,) if failure is not None else ())
        found = [*self.evaluation.failures(), *map(self._failure_with_nominated, self.nominated_to_others)]
        return statuses_of(self.pod, (), found)

    def _failure_with_nominated(self, row: int) -> Failure:
        failure = self._failure(row, (), *self._to_run(row))
        assert isinstance(failure, Failure), "a filter has just rejected the row"
        return failure

    def simulate(self, require: Predicate | None = None) -> Simulation:
        """See ``Handle.simulate``; ``require`` is called for each pod that passes all filters."""
        known: tuple[tuple[Hashable, Evaluation], ...] = ()
        if not self._view.columns.simulations:
            self.evaluation.refresh()
            known = ((self._key, self.evaluation),)
        simulation = Simulation(self.profile, self.cluster, self._check_time, known)
        if require is not None:
            simulation.require(require)
        return simulation

    def fits(self, row: int, without: Sequence[PodInfo]) -> bool:
        """See FailedAttempt."""
        added, filters = self._to_run(row)
        return filters is not None and self._failure(row, without, added, filters) is None

    def reprieve(
        self, row: int, candidates: Sequence[PodInfo], require: Predicate | None = None
    ) -> list[PodInfo] | None:
        """See FailedAttempt."""
        added, filters = self._to_run(row)
        if filters is None:
            return None
        if require is None and self._goes_by_columns(row, added, filters):
            return self._reprieve_by_columns(row, candidates, added, filters)
        with self.simulate(require) as simulation:
            return simulation.reprieve(self.pod, row, candidates)

    def reasons(self, row: int, without: Sequence[PodInfo], require: Predicate | None = None) -> Sequence[Reason]:
        """See FailedAttempt."""
        failure = self._failure(row, without, *self._to_run(row), require)
        return reasons_of(failure, self.pod) if failure is not None else ()

    def _to_run(self, row: int) -> tuple[Sequence[PodInfo], Sequence[CachedFilterResults] | None]:
        """The nominated pods that count as being on ``row``, and the filters that may have other results with them and
        without other pods; None when another filter rejects the row whichever pods are on it."""
        self._check_time()
        added = nominated_before(self._view, self.pod, row)
        return added, self.evaluation.filters_to_run(row, added=bool(added))

    def _failure(
        self,
        row: int,
        without: Sequence[PodInfo],
        added: Sequence[PodInfo],
        filters: Sequence[CachedFilterResults] | None,
        require: Predicate | None = None,
    ) -> Failure | Reason | None:
        """What would reject ``row`` if the pods ``without`` were gone and ``added`` were there; None if nothing
        would."""
        if filters is None or require is not None or not self._goes_by_columns(row, added, filters):
            with self.simulate(require) as simulation:
                for pod in without:
                    simulation.remove(pod)
                return simulation.failure(self.pod, row)
        with self._view.simulate() as journal:
            journal.add_request(row, *_difference(without, added))
            return first_failure(filters, self.evaluation.pod, row)

    def _goes_by_columns(self, row: int, added: Iterable[PodInfo], filters: Sequence[CachedFilterResults]) -> bool:
        """Whether it is enough to count other requests, instead of removing and placing pods, to run these filters on
        the hypothetical node."""
        if self.evaluation.overlaid or row in self._view.columns.discounts:
            return False
        if any(nominated_allocations(self.profile.allocators, self._view, pod) for pod in added):
            return False
        return all(entry.plugin.from_columns for entry in filters)

    def _reprieve_by_columns(
        self,
        row: int,
        candidates: Sequence[PodInfo],
        added: Sequence[PodInfo],
        filters: Sequence[CachedFilterResults],
    ) -> list[PodInfo] | None:
        pod = self.evaluation.pod
        with self._view.simulate() as journal:
            journal.add_request(row, *_difference(candidates, added))
            if any(entry.plugin.filter_one(pod, entry.state, row) for entry in filters):
                return None
            victims: list[PodInfo] = []
            for request, candidate in [(candidate.request, candidate) for candidate in candidates]:
                journal.add_request(row, request.counted, request.non_zero)
                for entry in filters:
                    if entry.plugin.filter_one(pod, entry.state, row):
                        journal.undo_request()
                        victims.append(candidate)
                        break
        return victims

    def remember(self, key: Hashable, compute: Callable[[int], T]) -> Callable[[int], T]:
        """See FailedAttempt. Does not cache if the result for a node depends on other nodes, too."""
        if not self.evaluation.is_local:
            return compute
        simulations = self._view.columns.simulations
        known: dict[int, tuple[tuple[str, ...], T]] = self._row_cache.results(key, self._view.columns)

        def recalled(row: int) -> T:
            if simulations:
                return compute(row)
            nominated = tuple([pod.uid for pod in nominated_before(self._view, self.pod, row)])
            found = known.get(row)
            if found is not None and found[0] == nominated:
                return found[1]
            result = compute(row)
            known[row] = nominated, result
            return result

        return recalled


def _difference(removed: Iterable[PodInfo], added: Iterable[PodInfo]) -> Request:
    """What is requested more (negative: less) when the pods ``removed`` leave a node and the pods ``added`` come."""
    gone = [(request.counted, request.non_zero, -1) for request in [pod.request for pod in removed]]
    return total([*gone, *[(pod.request.counted, pod.request.non_zero, 1) for pod in added]])
