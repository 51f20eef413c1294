"""What a plugin says of a single row is what it says of that row among many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.nodemetric import NodeMetric
from koordinator.scheduler.engine.framework import FilterPlugin, PreFilterPlugin, ScorePlugin, SkipScore
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from koordinator.scheduler.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from koordinator.scheduler.plugins.node_resources.fit import NodeResourcesFit
from tests.scheduler.fakes import describe, make_node, make_pod, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEIGHTS = [SimpleNamespace(name="cpu", weight=1), SimpleNamespace(name="memory", weight=3)]


def load_arguments(**changes: Any) -> SimpleNamespace:
    arguments: dict[str, Any] = {
        "aggregated": None,
        "usage_thresholds": {"cpu": 65, "memory": 95},
        "prod_usage_thresholds": {},
        "resource_weights": {"cpu": 1, "memory": 2},
        "estimated_scaling_factors": {"cpu": 85, "memory": 70},
        "supported_resources": [],
        "dominant_resource_weight": 0,
        "node_metric_expiration_seconds": 180,
        "filter_expired_node_metrics": True,
        "enable_schedule_when_node_metrics_expired": False,
        "prod_usage_include_sys": False,
        "score_according_prod_usage": False,
        "allow_customize_estimation": False,
        "estimated_seconds_after_pod_scheduled": None,
        "estimated_seconds_after_initialized": None,
    }
    return SimpleNamespace(**{**arguments, **changes})


def fit_arguments(strategy: str) -> SimpleNamespace:
    scoring = SimpleNamespace(type=strategy, resources=WEIGHTS, requested_to_capacity_ratio=None)
    return SimpleNamespace(ignored_resources=[], ignored_resource_groups=[], scoring_strategy=scoring)


def metric(name: str, cpu: int, age: int | None) -> NodeMetric:
    updated = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ") if age is not None else None
    usage = {"nodeUsage": {"resources": {"cpu": f"{cpu}m", "memory": f"{cpu}Mi"}}}
    return convert({"metadata": {"name": name}, "status": {"updateTime": updated, "nodeMetric": usage}}, NodeMetric)


NODE = st.tuples(
    st.sampled_from(["0", "1", "4", "7"]),
    st.sampled_from(["0", "1Gi", "9Gi"]),
    st.integers(0, 6),
    st.none() | st.tuples(st.integers(0, 5000), st.sampled_from([None, 0, 100, 179, 180, 900])),
)
LOAD_VARIANTS = st.sampled_from(
    [
        {},
        {"prod_usage_thresholds": {"cpu": 30}, "score_according_prod_usage": True},
        {"filter_expired_node_metrics": False},
        {"enable_schedule_when_node_metrics_expired": True},
        {"dominant_resource_weight": 2},
        {"usage_thresholds": {"cpu": 0, "memory": 0}},
    ]
)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(NODE, min_size=1, max_size=5),
    LOAD_VARIANTS,
    st.sampled_from(["LeastAllocated", "MostAllocated"]),
    st.sampled_from([("500m", "1Gi"), ("2", "100Mi"), ("0", "0")]),
    st.sampled_from([0, 9500]),
)
def test_one_row_equals_that_row_among_all(
    nodes: list[tuple[str, str, int, tuple[int, int | None] | None]],
    load: dict[str, Any],
    strategy: str,
    size: tuple[str, str],
    priority: int,
) -> None:
    state = make_state()
    state.view.now = NOW
    plugins = [
        NodeResourcesFit(fit_arguments(strategy), state.view),
        NodeResourcesBalancedAllocation(SimpleNamespace(resources=WEIGHTS), state.view),
        LoadAwareScheduling(load_arguments(**load), state.view),
    ]
    state.add_observers(plugin for plugin in plugins if isinstance(plugin, LoadAwareScheduling))
    for number, (cpu, memory, pods, usage) in enumerate(nodes):
        state.set_node(make_node(f"n{number}", cpu=cpu, memory=memory))
        if usage is not None:
            state.set_node_object("NodeMetric", f"n{number}", metric(f"n{number}", *usage))
        for index in range(pods):
            state.set_pod(describe(make_pod(f"p{number}-{index}", cpu="800m", priority=9500)), f"n{number}")
    rows = np.arange(len(nodes), dtype=np.intp)
    pod = describe(make_pod("p", cpu=size[0], memory=size[1], priority=priority))
    for plugin in plugins:
        before = plugin.pre_filter(pod).state if isinstance(plugin, PreFilterPlugin) else None
        if isinstance(plugin, FilterPlugin):
            codes = plugin.filter(pod, before, rows).tolist()
            assert codes == [plugin.filter_one(pod, before, row) for row in range(len(nodes))]
        if isinstance(plugin, ScorePlugin) and not isinstance(prepared := plugin.pre_score(pod), SkipScore):
            scores = plugin.score(pod, prepared, rows).tolist()
            assert scores == [plugin.score_one(pod, prepared, row) for row in range(len(nodes))]
