"""What a plugin says of a single row, or for many kinds of pods at once, is what it says of that row among many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.annotations import ADAPTIVE_SLO
from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.quantity import Quantity
from koordinator.scheduler.engine import framework, plugin_forms
from koordinator.scheduler.engine.batch_kernel import BatchKernel
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import Rows
from koordinator.scheduler.engine.framework import FilterPlugin, Plugin, PreFilterPlugin, ScorePlugin, SkipScore
from koordinator.scheduler.engine.plugin_forms import ElementwiseFilterPlugin, ElementwiseScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo, PodRequest
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from koordinator.scheduler.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from koordinator.scheduler.plugins.node_resources.fit import NodeResourcesFit
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEIGHTS = [SimpleNamespace(name=name, weight=weight) for name, weight in (("cpu", 1), ("memory", 3), ("a/b", 2))]


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
        "estimator": "",
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


Plugins = list[NodeResourcesFit | NodeResourcesBalancedAllocation | LoadAwareScheduling]
Nodes = list[tuple[str, str, int, tuple[int, int | None] | None]]


def make_plugins(nodes: Nodes, load: dict[str, Any], strategy: str) -> tuple[ClusterState, Plugins]:
    state = make_state()
    state.view.now = NOW
    plugins: Plugins = [
        NodeResourcesFit(fit_arguments(strategy), state.view),
        NodeResourcesBalancedAllocation(SimpleNamespace(resources=WEIGHTS), state.view),
        LoadAwareScheduling(load_arguments(**load), state.view),
    ]
    state.add_event_handlers(plugin for plugin in plugins if isinstance(plugin, LoadAwareScheduling))
    for number, (cpu, memory, pods, usage) in enumerate(nodes):
        node = make_node(f"n{number}", cpu=cpu, memory=memory)
        if number % 2:
            node.status.allocatable["a/b"] = Quantity.from_value(2)
        if number % 3 == 1:
            node.metadata.annotations[ADAPTIVE_SLO] = '{"level":1,"steps":4,"scorePercent":60}'
        state.set_node(node)
        if usage is not None:
            state.set_node_object("NodeMetric", f"n{number}", metric(f"n{number}", *usage))
        for index in range(pods):
            state.set_pod(describe(make_pod(f"p{number}-{index}", cpu="800m", priority=9500)), f"n{number}")
    return state, plugins


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(NODE, min_size=1, max_size=5),
    LOAD_VARIANTS,
    st.sampled_from(["LeastAllocated", "MostAllocated"]),
    st.sampled_from([("500m", "1Gi"), ("2", "100Mi"), ("0", "0")]),
    st.sampled_from([0, 9500]),
)
def test_one_row_equals_that_row_among_all(
    nodes: Nodes,
    load: dict[str, Any],
    strategy: str,
    size: tuple[str, str],
    priority: int,
) -> None:
    _, plugins = make_plugins(nodes, load, strategy)
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


_POINTS: Final = {"filter": FilterPlugin, "score": ScorePlugin}
_PARTS: Final = [kind for plugin in BUILT_IN.values() for kind in (plugin, *plugin.part_types)]
_OF_POINTS: Final = [(kind, point) for kind in _PARTS for point, base in _POINTS.items() if issubclass(kind, base)]


@pytest.mark.parametrize(("kind", "point"), _OF_POINTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_filter_and_a_score_have_one_form(kind: type[Plugin], point: str) -> None:
    """A plugin writes the method for many rows, or that for one; the other follows from its base class."""
    for_one = f"{point}_one"
    of_plugins = [base for base in kind.__mro__ if base.__module__ not in (framework.__name__, plugin_forms.__name__)]
    writes_many = any(point in vars(base) for base in of_plugins)
    writes_one = any(vars(base).get(for_one) not in (None, getattr(base, point, None)) for base in of_plugins)
    assert not (writes_many and writes_one)


@pytest.mark.parametrize(("form", "point"), [(ElementwiseFilterPlugin, "filter"), (ElementwiseScorePlugin, "score")])
def test_an_elementwise_rule_cannot_be_written_again_for_one_row(form: type[Plugin], point: str) -> None:
    with pytest.raises(TypeError, match=f"Twice writes {point}_one beside {point}"):
        type("Twice", (form,), {point: lambda *arguments: 0, f"{point}_one": lambda *arguments: 0})


@pytest.mark.parametrize(
    ("text", "share"), [(None, 1.0), ('{"scorePercent":60}', 0.6), ('{"level":1,"scorePercent":0}', 0)]
)
def test_the_score_by_load_of_an_adapted_node_is_a_share_of_what_it_was(text: str | None, share: float) -> None:
    state, plugins = make_plugins([("4", "9Gi", 0, (1000, 0))], {}, "LeastAllocated")
    plugin, pod = plugins[-1], describe(make_pod("p"))
    before = plugin.score_one(pod, plugin.pre_score(pod), 0)
    state.set_node(annotated(make_node("n0", cpu="4", memory="9Gi"), text))
    assert before > 0
    assert plugin.score_one(pod, plugin.pre_score(pod), 0) == int(before * share)
    state.set_node(make_node("n0", cpu="4", memory="9Gi"))
    assert plugin.score(pod, plugin.pre_score(pod), np.zeros(1, dtype=np.intp)).tolist() == [before]


def annotated(node: Node, text: str | None) -> Node:
    node.metadata.annotations.update({ADAPTIVE_SLO: text} if text is not None else {})
    return node


SIZES = [("500m", "1Gi"), ("2", "100Mi"), ("0", "1Gi"), ("1", "0"), ("8", "32Gi")]


@settings(deadline=None, max_examples=examples(100))
@given(
    st.lists(NODE, min_size=2, max_size=5),
    LOAD_VARIANTS,
    st.sampled_from(["LeastAllocated", "MostAllocated"]),
    st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from([0, 9500]), st.integers(0, 2)), min_size=1, max_size=20),
    st.data(),
)
def test_many_kinds_of_pods_at_once_equal_one_after_the_other(
    nodes: Nodes,
    load: dict[str, Any],
    strategy: str,
    kinds: list[tuple[tuple[str, str], int, int]],
    data: st.DataObject,
) -> None:
    _, plugins = make_plugins(nodes, load, strategy)
    pods = [
        with_extended(describe(make_pod(f"k{number}", cpu=cpu, memory=memory, priority=priority)), extended)
        for number, ((cpu, memory), priority, extended) in enumerate(kinds)
    ]
    rows = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(nodes))), min_size=1))), dtype=np.intp)
    for plugin in plugins:
        if isinstance(plugin, FilterPlugin) and isinstance(plugin, PreFilterPlugin):
            prepared = [plugin.pre_filter(pod).state for pod in pods]
            batch_kernel = plugin.batch_filter()
            assert batch_kernel is not None
            expected = [plugin.filter(pod, each, rows).tolist() for pod, each in zip(pods, prepared, strict=True)]
            assert evaluated(batch_kernel, pods, prepared, rows) == expected
        states = [(pod, each) for pod in pods if not isinstance(each := plugin.pre_score(pod), SkipScore)]
        scorer = plugin.batch_score()
        if states and scorer is not None:
            expected = [plugin.score(pod, each, rows).tolist() for pod, each in states]
            assert evaluated(scorer, [pod for pod, _ in states], [each for _, each in states], rows) == expected


def with_extended(pod: PodInfo, kind: int) -> PodInfo:
    """The pod requests a resource that some nodes offer (1), or that and one that no node offers (2)."""
    more: dict[str, int] = [{}, {"a/b": 1}, {"a/b": 2, "a/c": 1}][kind]
    return msgspec.structs.replace(pod, request=PodRequest({**pod.request.amounts, **more}, pod.request.non_zero))


def evaluated(batch_kernel: BatchKernel, pods: list[PodInfo], states: list[Any], rows: Rows) -> list[list[int]]:
    """By kind and row."""
    for slot, (pod, state) in enumerate(zip(pods, states, strict=True)):
        batch_kernel.put(slot, pod, state)
    found = batch_kernel.evaluate(rows)
    values: list[list[int]] = found.T.tolist() if found is not None else [[0] * rows.shape[0] for _ in pods]
    return values
