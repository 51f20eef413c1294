"""What a class of pods is judged by: which plugins have something to say about it, with what prepared state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from koordinator.scheduler.engine.columns import Aspect, Ints
from koordinator.scheduler.engine.framework import (
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
    SkipScore,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.point_times import UNTIMED, PointTimes
from koordinator.scheduler.engine.profile import Profile


@dataclass(slots=True)
class PlannedFilter:
    """A Filter plugin that takes part. ``reads`` is a bit mask of aspects."""

    plugin: FilterPlugin
    state: Any
    reads: int
    follows: bool
    """Its verdict on a node depends on other nodes."""


@dataclass(slots=True)
class PlannedScore:
    """A Score plugin that takes part."""

    plugin: ScorePlugin
    state: Any
    weight: int
    reads: int
    follows: bool
    raw: Ints | None
    """What ``normalize`` starts from; None for a plugin that scores in 0..100 by itself."""


@dataclass(slots=True)
class ClassPlan:
    """Made once for a class of pods, by PreFilter and PreScore of a representative."""

    filters: list[PlannedFilter] = field(default_factory=list)
    scores: list[PlannedScore] = field(default_factory=list)
    rejection: tuple[str, Reason] | None = None
    """The plugin that rules out every node before any is looked at, and why."""
    restricted_to: frozenset[str] | None = None
    """The only nodes that are looked at."""
    restricted_by: list[str] = field(default_factory=list)
    pod: PodInfo | None = None
    """What is judged instead of the pod, if a transformer says so."""


def plan_class(profile: Profile, pod: PodInfo, times: PointTimes = UNTIMED) -> ClassPlan:
    """Run PreFilter and, unless that ends it, PreScore."""
    plan = ClassPlan()
    for transformer in profile.pre_filter_transformers:
        answer = transformer.before_pre_filter(pod)
        if isinstance(answer, Reason):
            plan.rejection = transformer.name, answer
            return plan
        if answer is not None:
            plan.pod = pod = answer
    begun = times.begin()
    results = _pre_filter(plan, profile.pre_filter, pod)
    times.end("PreFilter", begun, "Success" if plan.rejection is None else "Unschedulable")
    for transformer in profile.pre_filter_transformers:
        if plan.rejection is None and (reason := transformer.after_pre_filter(pod, plan.restricted_to)) is not None:
            plan.rejection = transformer.name, reason
    if plan.rejection is not None:
        return plan
    plan.filters = [
        PlannedFilter(
            plugin,
            results[plugin.name].state if plugin.name in results else None,
            _mask(plugin.reads),
            type(plugin).follow is not FilterPlugin.follow,
        )
        for plugin in profile.filter
        if plugin.name not in results or not results[plugin.name].skip
    ]
    begun = times.begin()
    plan.scores = _pre_score(profile.score, pod)
    times.end("PreScore", begun)
    return plan


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


def _pre_score(plugins: Iterable[tuple[ScorePlugin, int]], pod: PodInfo) -> list[PlannedScore]:
    scores = []
    for plugin, weight in plugins:
        state = plugin.pre_score(pod)
        if isinstance(state, SkipScore):
            continue
        scales = type(plugin).normalize is not ScorePlugin.normalize
        raw = np.zeros(0, dtype=np.int64) if scales else None
        follows = type(plugin).follow_score is not ScorePlugin.follow_score
        scores.append(PlannedScore(plugin, state, weight, _mask(plugin.score_reads), follows, raw))
    return scores


def _mask(aspects: Iterable[Aspect]) -> int:
    # What reads nothing that changes still has to see a row once: with its node.
    return sum(1 << aspect for aspect in set(aspects)) or 1 << Aspect.NODE
