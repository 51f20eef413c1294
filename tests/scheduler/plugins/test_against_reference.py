"""Every vectorised Filter and Score agrees with its plain version, after any events, for any pod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.pod import NodeAffinity, Pod
from koordinator.scheduler.configuration.argument_checks import complete_load_aware
from koordinator.scheduler.configuration.arguments import (
    LoadAwareSchedulingArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatio,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from koordinator.scheduler.engine.framework import EventHandler, FilterPlugin, PreFilterPlugin, ScorePlugin, SkipScore
from tests.examples import examples
from tests.scheduler.plugins import reference, reference_load
from tests.scheduler.plugins.clusters import EXTENDED, NOW, ClusterFixture, fixtures, pods
from tests.scheduler.plugins.placement_rules import node_affinities
from tests.scheduler.plugins.reference import FilterResult, Machine

FILTERS: dict[str, Callable[[Machine, Pod], FilterResult]] = {
    "NodeUnschedulable": reference.unschedulable,
    "TaintToleration": reference.taints,
    "NodeAffinity": reference.affinity,
    "NodePorts": reference.ports,
    "NodeResourcesFit": reference.fit,
}
WEIGHTS = {
    "cpu": 1,
    "memory": 2,
    EXTENDED: 3,
    "kubernetes.io/batch-cpu": 1,
    "ephemeral-storage": 2,
    "hugepages-2Mi": 1,
    "pods": 5,
}
RESOURCES = [ResourceSpec(name=name, weight=weight) for name, weight in WEIGHTS.items()]
SETTINGS = settings(max_examples=examples(30))


def filter_results(fixture: ClusterFixture, name: str, pod: Pod) -> dict[str, FilterResult]:
    """Node -> reasons as the plugin gives them."""
    plugin, info = fixture.plugins[name], fixture.info(pod)
    assert isinstance(plugin, FilterPlugin)
    if isinstance(plugin, EventHandler):
        plugin.on_time(NOW)
    state = None
    if isinstance(plugin, PreFilterPlugin):
        prepared = plugin.pre_filter(info)
        if prepared.rejection is not None:
            return {node: [(prepared.rejection.text, prepared.rejection.unresolvable)] for node in fixture.machines}
        if prepared.skip:
            return {node: [] for node in fixture.machines}
        state = prepared.state
    names = sorted(fixture.machines, key=fixture.view.columns.row_of.__getitem__)
    rows = np.array([fixture.view.columns.row_of[node] for node in names], dtype=np.intp)
    codes = plugin.filter(info, state, rows).tolist()
    found: dict[str, FilterResult] = {}
    for node, row, code in zip(names, rows.tolist(), codes, strict=True):
        assert plugin.filter_one(info, state, row) == code
        reasons = plugin.reasons(info, state, code) if code else ()
        found[node] = [(reason.text, reason.unresolvable) for reason in reasons]
    return found


def scores(fixture: ClusterFixture, name: str, pod: Pod) -> dict[str, int] | None:
    """Node -> raw score; None when the plugin leaves itself out."""
    plugin, info = fixture.plugins[name], fixture.info(pod)
    assert isinstance(plugin, ScorePlugin)
    if isinstance(plugin, EventHandler):
        plugin.on_time(NOW)
    state = plugin.pre_score(info)
    if isinstance(state, SkipScore):
        return None
    names = sorted(fixture.machines, key=fixture.view.columns.row_of.__getitem__)
    rows = np.array([fixture.view.columns.row_of[node] for node in names], dtype=np.intp)
    values = plugin.score(info, state, rows).tolist()
    assert [plugin.score_one(info, state, row) for row in rows.tolist()] == values
    return dict(zip(names, values, strict=True))


def expected(fixture: ClusterFixture, function: Callable[[Machine], Any]) -> dict[str, Any]:
    return {name: function(machine) for name, machine in sorted(fixture.machines.items())}


@pytest.mark.parametrize("name", FILTERS)
@SETTINGS
@given(fixture=fixtures(), pod=pods("incoming"))
def test_filter(name: str, fixture: ClusterFixture, pod: Pod) -> None:
    # Upstream names what is missing of several extended resources in no particular order.
    found = {node: sorted(reasons) for node, reasons in filter_results(fixture, name, pod).items()}
    assert found == expected(fixture, lambda machine: sorted(FILTERS[name](machine, pod)))


IGNORED = {
    "nothing": ([], []),
    "a resource": ([EXTENDED], []),
    "a group": ([], ["other.org"]),
    "what cannot be ignored": (["cpu", "kubernetes.io/batch-cpu"], ["kubernetes.io"]),
}


@pytest.mark.parametrize("ignored", IGNORED.values(), ids=IGNORED)
@SETTINGS
@given(data=st.data(), pod=pods("incoming"))
def test_resources_that_are_ignored(ignored: tuple[list[str], list[str]], data: st.DataObject, pod: Pod) -> None:
    args = NodeResourcesFitArgs(ignored_resources=ignored[0], ignored_resource_groups=ignored[1])
    fixture = data.draw(fixtures({"NodeResourcesFit": args}))
    found = {node: sorted(reasons) for node, reasons in filter_results(fixture, "NodeResourcesFit", pod).items()}
    assert found == expected(fixture, lambda machine: sorted(reference.fit(machine, pod, *ignored)))


@SETTINGS
@given(data=st.data(), added=node_affinities, pod=pods("incoming"))
def test_affinity_that_the_profile_adds(data: st.DataObject, added: NodeAffinity, pod: Pod) -> None:
    fixture = data.draw(fixtures({"NodeAffinity": NodeAffinityArgs(added_affinity=added)}))
    wanted = expected(fixture, lambda machine: reference.affinity(machine, pod, added))
    assert filter_results(fixture, "NodeAffinity", pod) == wanted
    points = expected(fixture, lambda machine: reference.preferred(machine, pod, added))
    found = scores(fixture, "NodeAffinity", pod)
    assert found == points or (found is None and set(points.values()) <= {0})


def fit_args(strategy: str, shape: Sequence[tuple[int, int]] = ()) -> dict[str, Any]:
    points = [UtilizationShapePoint(utilization=x, score=y) for x, y in shape]
    ratio = RequestedToCapacityRatio(shape=points) if shape else None
    chosen = ScoringStrategy(type=strategy, resources=RESOURCES, requested_to_capacity_ratio=ratio)
    return {"NodeResourcesFit": NodeResourcesFitArgs(scoring_strategy=chosen)}


@SETTINGS
@given(fixture=fixtures(fit_args("LeastAllocated")), pod=pods("incoming"))
def test_least_allocated(fixture: ClusterFixture, pod: Pod) -> None:
    wanted = expected(fixture, lambda machine: reference.least_allocated(machine, pod, WEIGHTS))
    assert scores(fixture, "NodeResourcesFit", pod) == wanted


@SETTINGS
@given(fixture=fixtures(fit_args("MostAllocated")), pod=pods("incoming"))
def test_most_allocated(fixture: ClusterFixture, pod: Pod) -> None:
    wanted = expected(fixture, lambda machine: reference.most_allocated(machine, pod, WEIGHTS))
    assert scores(fixture, "NodeResourcesFit", pod) == wanted


SHAPES = {
    "fuller is better": [(0, 0), (100, 10)],
    "emptier is better": [(0, 10), (100, 0)],
    "corners": [(10, 3), (45, 10), (70, 1), (90, 7)],
    "flat": [(50, 4)],
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@SETTINGS
@given(data=st.data(), pod=pods("incoming"))
def test_requested_to_capacity_ratio(shape: list[tuple[int, int]], data: st.DataObject, pod: Pod) -> None:
    fixture = data.draw(fixtures(fit_args("RequestedToCapacityRatio", shape)))
    wanted = expected(fixture, lambda machine: reference.requested_to_capacity_ratio(machine, pod, WEIGHTS, shape))
    assert scores(fixture, "NodeResourcesFit", pod) == wanted


BALANCED = {
    "two": ["cpu", "memory"],
    "three": ["cpu", "memory", EXTENDED],
    "one": ["memory"],
    "many": ["cpu", "memory", EXTENDED, "ephemeral-storage", "hugepages-2Mi", "pods"],
}


@pytest.mark.parametrize("names", BALANCED.values(), ids=BALANCED)
@SETTINGS
@given(data=st.data(), pod=pods("incoming"))
def test_balanced_allocation(names: list[str], data: st.DataObject, pod: Pod) -> None:
    args = NodeResourcesBalancedAllocationArgs(resources=[ResourceSpec(name=name) for name in names])
    fixture = data.draw(fixtures({"NodeResourcesBalancedAllocation": args}))
    wanted = expected(fixture, lambda machine: reference.balanced(machine, pod, names))
    found = scores(fixture, "NodeResourcesBalancedAllocation", pod)
    assert found == (None if None in wanted.values() else wanted)


@SETTINGS
@given(fixture=fixtures(), pod=pods("incoming"))
def test_soft_taints(fixture: ClusterFixture, pod: Pod) -> None:
    assert scores(fixture, "TaintToleration", pod) == expected(fixture, lambda m: reference.soft_taints(m, pod))


@SETTINGS
@given(fixture=fixtures(), pod=pods("incoming"))
def test_preferred_affinity(fixture: ClusterFixture, pod: Pod) -> None:
    found = scores(fixture, "NodeAffinity", pod)
    wanted = expected(fixture, lambda machine: reference.preferred(machine, pod))
    assert found == wanted or (found is None and set(wanted.values()) <= {0})


def load_args(**changes: Any) -> LoadAwareSchedulingArgs:
    return complete_load_aware(LoadAwareSchedulingArgs(**changes), "args")


LOAD_AWARE = {
    "defaults": load_args(),
    "stale reports still count": load_args(filter_expired_node_metrics=False, node_metric_expiration_seconds=120),
    "expired nodes pass": load_args(enable_schedule_when_node_metrics_expired=True, node_metric_expiration_seconds=60),
    "production thresholds": load_args(prod_usage_thresholds={"cpu": 40}, score_according_prod_usage=True),
    "production with system": load_args(prod_usage_thresholds={"memory": 50}, prod_usage_include_sys=True),
    "weights": load_args(resource_weights={"cpu": 3, "memory": 1}, usage_thresholds={"cpu": 0, "memory": 60}),
}


@pytest.mark.parametrize("args", LOAD_AWARE.values(), ids=LOAD_AWARE)
@SETTINGS
@given(data=st.data(), pod=pods("incoming"))
def test_load_aware_filter(args: LoadAwareSchedulingArgs, data: st.DataObject, pod: Pod) -> None:
    fixture = data.draw(fixtures({"LoadAwareScheduling": args}))
    wanted = expected(fixture, lambda machine: reference_load.load_aware_filter(machine, pod, args, NOW))
    assert filter_results(fixture, "LoadAwareScheduling", pod) == wanted


@pytest.mark.parametrize("args", LOAD_AWARE.values(), ids=LOAD_AWARE)
@SETTINGS
@given(data=st.data(), pod=pods("incoming"))
def test_load_aware_score(args: LoadAwareSchedulingArgs, data: st.DataObject, pod: Pod) -> None:
    fixture = data.draw(fixtures({"LoadAwareScheduling": args}))
    wanted = expected(fixture, lambda machine: reference_load.load_aware_score(machine, pod, args, NOW))
    assert scores(fixture, "LoadAwareScheduling", pod) == wanted
