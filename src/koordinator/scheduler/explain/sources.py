"""The scheduler's state from which explanations are made, and the present results of all Filter plugins on nodes for
one pod: decisions need only the first plugin that rejects.

As in decisions, a node has to pass as it is and with the pods that are nominated to it and come before the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np

from koordinator.api.explanations import NodeLack
from koordinator.scheduler.engine.cached_results import CachedFilterResults
from koordinator.scheduler.engine.class_plan import ClassPlan, plan_class
from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.engine.decision import Attempt
from koordinator.scheduler.engine.framework import FEASIBLE, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_overlays import RowOverlays
from koordinator.scheduler.engine.simulation import nominated_before, place_nominated
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue


class AttemptLog(Protocol):
    """The last attempts of pods, which the scheduling loop keeps."""

    def attempts(self, key: str) -> Sequence[Attempt]: ...
    def latest(self) -> Iterator[tuple[str, Attempt]]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """The scheduler's state, only to be read. ``profiles`` by scheduler name."""

    decisions: AttemptLog
    queue: SchedulingQueue
    view: ClusterView
    profiles: Mapping[str, Profile]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]

    def notify_time(self) -> None:
        """Notify plugins of the present time, as before a decision: otherwise stale reports would seem fresh. Raises
        what a plugin raises."""
        now = self.view.now = self.now()
        for profile in self.profiles.values():
            for handler in profile.event_handlers:
                handler.on_time(now)

    def queued(self, key: str) -> QueuedPod | None:
        """The pod ``namespace/name`` in the queue, else None."""
        return next((entry for entry in self.queue.pods() if entry.pod.key == key), None)


@dataclass(frozen=True, slots=True)
class Objection:
    """The rejection of one node by one plugin."""

    plugin: str
    reasons: tuple[Reason, ...]
    lacks: tuple[Lack, ...]

    @property
    def document(self) -> NodeLack:
        """The same in texts."""
        reasons, details = [reason.text for reason in self.reasons], [lack.text for lack in self.lacks]
        return NodeLack(plugin=self.plugin, reasons=reasons, details=details)


@dataclass(frozen=True, slots=True)
class FilterResults:
    """``codes`` has the shape (filters, rows), as ``by_nominated``."""

    profile: Profile
    view: ClusterView
    plan: ClassPlan
    pod: PodInfo
    rows: Rows
    codes: Ints
    by_nominated: Mask
    """The codes that are returned while nominated pods count as being on the node."""

    def against(self, plugin: str) -> Mask:
        """A mask of the rows that the plugin rejects."""
        names = [entry.plugin.name for entry in self.plan.filters]
        if plugin not in names:
            return np.zeros(self.rows.shape[0], dtype=np.bool_)
        against: Mask = self.codes[names.index(plugin)] != FEASIBLE
        return against

    def objections(self, index: int) -> tuple[Objection, ...]:
        """The rejections of ``rows[index]`` by every plugin, in the order of the profile."""
        row, found = int(self.rows[index]), dict[int, Objection]()
        for nominated in (False, True):
            meant = (self.codes[:, index] != FEASIBLE) & (self.by_nominated[:, index] == nominated)
            if not (numbers := np.flatnonzero(meant).tolist()):
                continue
            with self._as_filters_see(row, nominated=nominated):
                for number in numbers:
                    code = int(self.codes[number, index])
                    found[number] = _objection(self.plan.filters[number], self.pod, code, row)
        return tuple(found[number] for number in sorted(found))

    def _evaluate(self) -> None:
        filters, index_of = self.plan.filters, {row: index for index, row in enumerate(self.rows.tolist())}
        for number, entry in enumerate(filters):
            self.codes[number] = entry.plugin.filter(self.pod, entry.state, self.rows)
        for row, seen in RowOverlays(self.profile, self.pod).rows(self.rows, filters, ()).items():
            self.codes[:, index_of[row]] = seen.codes
        nominated = {self.view.columns.row_of.get(name, -1) for name in self.view.nominations.nodes}
        for row in nominated & index_of.keys():
            if nominated_before(self.view, self.pod, row):
                with self._as_filters_see(row, nominated=True):
                    codes = [entry.plugin.filter_one(self.pod, entry.state, row) for entry in filters]
                for number, code in enumerate(codes):
                    if code != FEASIBLE:
                        self.codes[number, index_of[row]], self.by_nominated[number, index_of[row]] = code, True

    @contextmanager
    def _as_filters_see(self, row: int, *, nominated: bool) -> Iterator[None]:
        """A block in which the row is as Filter plugins see it for this pod."""
        with self.view.simulate() as journal:
            if nominated:
                place_nominated(journal, self.profile.allocators, self.view, self.pod, row)
            RowOverlays(self.profile, self.pod).show(journal, np.array((row,), dtype=np.intp))
            journal.inform([entry for entry in self.plan.filters if entry.is_cross_node])
            yield


def filter_nodes(profile: Profile, view: ClusterView, pod: PodInfo, rows: Sequence[int] | None = None) -> FilterResults:
    """Run all Filter plugins on ``rows`` (None: all nodes that PreFilter leaves). Changes nothing. Raises what a plugin
    raises."""
    plan = plan_class(profile, view, pod)
    evaluated = plan.pod or pod
    if rows is None:
        names = view.columns.row_of if plan.restricted_to is None else plan.restricted_to & view.columns.row_of.keys()
        rows = sorted(view.columns.row_of[name] for name in names)
    array = np.array(rows if plan.rejection is None else (), dtype=np.intp)
    shape = len(plan.filters), array.shape[0]
    results = FilterResults(profile, view, plan, evaluated, array, np.zeros(shape, np.int64), np.zeros(shape, np.bool_))
    if array.shape[0]:
        results._evaluate()
    return results


def _objection(entry: CachedFilterResults, pod: PodInfo, code: int, row: int) -> Objection:
    plugin = entry.plugin
    lacks = plugin.lacks(pod, entry.state, code, row) if isinstance(plugin, Explainer) else ()
    return Objection(plugin.name, tuple(plugin.reasons(pod, entry.state, code)), tuple(lacks))
