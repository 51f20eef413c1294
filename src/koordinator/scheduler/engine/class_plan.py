"""How a class of pods is evaluated: which plugins take part, with what state from PreFilter and PreScore."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from koordinator.scheduler.engine.cached_results import CachedFilterResults, CachedScores, SharedResults
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.framework import (
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
    ScoreType,
    SkipScore,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import UNTIMED, PointTimes, Profile
from koordinator.scheduler.engine.view import ClusterView


@dataclass(slots=True)
class ClassPlan:
    """Made once for a class of pods, by PreFilter and PreScore of a representative. It holds until the filters of the
    engine change or a node offers a resource that none offered before, which plugins' states name by its column."""

    filters: list[CachedFilterResults] = field(default_factory=list)
    """Of the Filter plugins that did not skip this class."""
    scores: list[CachedScores] = field(default_factory=list)
    rejection: tuple[str, Reason] | None = None
    """The plugin that rejects every node before any is filtered, and why."""
    restricted_to: frozenset[str] | None = None
    """The only nodes that are considered."""
    restricted_by: list[str] = field(default_factory=list)
    pod: PodInfo | None = None
    """The pod that is evaluated in place of the original, if a transformer returned one."""


def plan_class(
    profile: Profile,
    view: ClusterView,
    pod: PodInfo,
    times: PointTimes = UNTIMED,
    shared: SharedResults | None = None,
    *,
    with_scores: bool = True,
) -> ClassPlan:
    """Run PreFilter and, unless PreFilter rejects or only filters are wanted, PreScore. Cached results are taken from
    ``shared`` where they exist."""
    plan = ClassPlan()
    for transformer in profile.pre_filter_transformers:
        replacement = transformer.before_pre_filter(pod)
        if isinstance(replacement, Reason):
            plan.rejection = transformer.name, replacement
            return plan
        if replacement is not None:
            plan.pod = pod = replacement
    begun = times.begin()
    try:
        results = _pre_filter(plan, profile.pre_filter, pod)
    except Exception:
        times.end("PreFilter", begun, "Error")
        raise
    times.end("PreFilter", begun, "Success" if plan.rejection is None else "Unschedulable")
    for transformer in profile.pre_filter_transformers:
        if plan.rejection is None and (reason := transformer.after_pre_filter(pod, plan.restricted_to)) is not None:
            plan.rejection = transformer.name, reason
    if plan.rejection is not None:
        return plan
    is_plain = _is_plain(plan)
    makers = _Makers(view.columns, pod, shared if is_plain else None, profile.score_type)
    plan.filters = [
        makers.filter(plugin, results[plugin.name].state if plugin.name in results else None)
        for plugin in (*view.engine_filters, *profile.filter)
        if plugin.name not in results or not results[plugin.name].skip
    ]
    begun = times.begin()
    try:
        for plugin, weight in profile.score if with_scores else ():
            scores = makers.score(plugin, weight)
            if scores is not None:
                plan.scores.append(scores)
    except Exception:
        times.end("PreScore", begun, "Error")
        raise
    times.end("PreScore", begun)
    if not is_plain:
        for cached in (*plan.filters, *plan.scores):
            cached.is_shared = False
    return plan


def _is_plain(plan: ClassPlan) -> bool:
    """Whether a plugin's results follow from its keys and the columns alone."""
    return plan.restricted_to is None and plan.pod is None


def _pre_filter(plan: ClassPlan, plugins: Iterable[PreFilterPlugin], pod: PodInfo) -> dict[str, PreFilterResult]:
    results: dict[str, PreFilterResult] = {}
    for plugin in plugins:
        result = results[plugin.name] = plugin.pre_filter(pod)
        if result.rejection is not None:
            plan.rejection = plugin.name, result.rejection
            break
        if result.node_names is not None:
            before = plan.restricted_to
            plan.restricted_to = result.node_names if before is None else before & result.node_names
            plan.restricted_by.append(plugin.name)
    return results


class _Makers:
    """Cached results of plugins for one class of pods."""

    def __init__(self, columns: NodeColumns, pod: PodInfo, shared: SharedResults | None, score_type: ScoreType) -> None:
        self._columns = columns
        self._score_type = score_type
        self._pod = pod
        self._shared = shared

    def filter(self, plugin: FilterPlugin, state: Any) -> CachedFilterResults:
        is_cross_node = type(plugin).apply_delta is not FilterPlugin.apply_delta

        def make() -> CachedFilterResults:
            reads = self._columns.mask(plugin.reads)
            return CachedFilterResults(self._columns, plugin, self._pod, state, reads, is_cross_node=is_cross_node)

        if is_cross_node or self._shared is None:
            return make()
        return self._shared.of(CachedFilterResults, plugin, self._pod, make)

    def score(self, plugin: ScorePlugin, weight: int) -> CachedScores | None:
        """Runs PreScore, unless there are cached results; None if the plugin is skipped."""
        is_cross_node = type(plugin).apply_score_delta is not ScorePlugin.apply_score_delta

        def make() -> CachedScores | None:
            state = plugin.pre_score(self._pod)
            if isinstance(state, SkipScore):
                return None
            return CachedScores(
                self._columns,
                plugin,
                self._pod,
                state,
                self._columns.mask(plugin.score_reads),
                is_cross_node=is_cross_node,
                weight=weight,
                scales=type(plugin).normalize is not ScorePlugin.normalize,
                score_type=self._score_type,
            )

        if is_cross_node or self._shared is None:
            return make()
        return self._shared.of(CachedScores, plugin, self._pod, make)
