"""The present results of all Filter plugins on nodes for one pod. Decisions need only the first plugin that rejects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from koordinator.scheduler.engine.adjustment import Adjustment, adjusted, difference
from koordinator.scheduler.engine.cached_results import CachedFilterResults
from koordinator.scheduler.engine.class_plan import ClassPlan, plan_class
from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.engine.framework import FEASIBLE, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_overlays import RowOverlays
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack


@dataclass(frozen=True, slots=True)
class Objection:
    """The rejection of one node by one plugin."""

    plugin: str
    reasons: tuple[Reason, ...]
    lacks: tuple[Lack, ...]


@dataclass(frozen=True, slots=True)
class FilterResults:
    """``codes`` has the shape (filters, rows)."""

    profile: Profile
    view: ClusterView
    plan: ClassPlan
    pod: PodInfo
    rows: Rows
    codes: Ints

    def against(self, plugin: str) -> Mask:
        """A mask of the rows that the plugin rejects."""
        names = [entry.plugin.name for entry in self.plan.filters]
        if plugin not in names:
            return np.zeros(self.rows.shape[0], dtype=np.bool_)
        against: Mask = self.codes[names.index(plugin)] != FEASIBLE
        return against

    def objections(self, index: int) -> tuple[Objection, ...]:
        """The rejections of ``rows[index]`` by every plugin, in the order of the profile."""
        row = int(self.rows[index])
        with _as_filters_see(self.profile, self.view, self.pod, self.rows[index : index + 1]):
            return tuple(
                _objection(entry, self.pod, code, row)
                for entry, code in zip(self.plan.filters, self.codes[:, index].tolist(), strict=True)
                if code != FEASIBLE
            )


def filter_nodes(profile: Profile, view: ClusterView, pod: PodInfo, rows: Sequence[int] | None = None) -> FilterResults:
    """Run all Filter plugins on ``rows`` (None: all nodes that PreFilter leaves). Changes nothing. Raises what a plugin
    raises."""
    plan = plan_class(profile, view, pod)
    evaluated = plan.pod or pod
    if rows is None:
        names = view.columns.row_of if plan.restricted_to is None else plan.restricted_to & view.columns.row_of.keys()
        rows = sorted(view.columns.row_of[name] for name in names)
    array = np.array(rows if plan.rejection is None else (), dtype=np.intp)
    codes = np.zeros((len(plan.filters), array.shape[0]), dtype=np.int64)
    if array.shape[0]:
        with _as_filters_see(profile, view, evaluated, array):
            for index, entry in enumerate(plan.filters):
                codes[index] = entry.plugin.filter(evaluated, entry.state, array)
    return FilterResults(profile, view, plan, evaluated, array, codes)


@contextmanager
def _as_filters_see(profile: Profile, view: ClusterView, pod: PodInfo, rows: Rows) -> Iterator[None]:
    """A block in which the columns are as Filter plugins see them for this pod."""
    with ExitStack() as seen:
        seen.enter_context(adjusted(view.columns, _nominated(view, pod)))
        overlays = RowOverlays(profile, pod)
        if overlays:
            overlays.show(seen.enter_context(view.simulate()), rows)
        yield


def _nominated(view: ClusterView, pod: PodInfo) -> dict[int, Adjustment]:
    """The requests of nominated pods, by row. Their affinities are not considered."""
    rows = {name: row for name in view.nominations.nodes if (row := view.columns.row_of.get(name)) is not None}
    return {row: difference((), before) for name, row in rows.items() if (before := _before(view, pod, name, row))}


def _before(view: ClusterView, pod: PodInfo, node_name: str, row: int) -> list[PodInfo]:
    """The pods nominated to the node that take precedence over the pod: as engine.simulation.nominated_before."""
    found, seen = [], False
    for other in view.nominations.on(node_name):
        seen = seen or other.uid == pod.uid
        equals_count = not seen and not view.nominations.is_foreign(other.uid)
        waits = other.uid != pod.uid and other.uid not in view.pods_on.get(row, {})
        if waits and other.priority + equals_count > pod.priority:
            found.append(other)
    return found


def _objection(entry: CachedFilterResults, pod: PodInfo, code: int, row: int) -> Objection:
    plugin = entry.plugin
    lacks = plugin.lacks(pod, entry.state, code, row) if isinstance(plugin, Explainer) else ()
    return Objection(plugin.name, tuple(plugin.reasons(pod, entry.state, code)), tuple(lacks))
