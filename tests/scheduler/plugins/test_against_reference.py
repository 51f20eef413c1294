"""Every vectorised Filter and Score agrees with its plain version, after any events, for any pod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.pod import NodeAffinity, Pod
from koordinator.scheduler.configuration.koordinator_arguments import LoadAwareSchedulingArgs
from koordinator.scheduler.configuration.upstream_arguments import (
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
from tests.scheduler.plugins.clusters import EXTENDED, NOW, ClusterFixture, Variants, fixtures, pods
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
OF_MANY = settings(max_examples=examples(40))
"""Where one cluster is shown to many plugins."""


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


@OF_MANY
@given(fixture=fixtures(), pod=pods("incoming"))
def test_filters(fixture: ClusterFixture, pod: Pod) -> None:
    for name, plain in FILTERS.items():
        _agree_on_reasons(fixture, name, pod, plain)


def _agree_on_reasons(
    fixture: ClusterFixture, name: str, pod: Pod, plain: Callable[[Machine, Pod], FilterResult]
) -> None:
    # Upstream names what is missing of several extended resources in no particular order.
    found = {node: sorted(reasons) for node, reasons in filter_results(fixture, name, pod).items()}
    assert (name, found) == (name, expected(fixture, lambda machine: sorted(plain(machine, pod))))


IGNORED = {
    "nothing": ([], []),
    "a resource": ([EXTENDED], []),
    "a group": ([], ["other.org"]),
    "what cannot be ignored": (["cpu", "kubernetes.io/batch-cpu"], ["kubernetes.io"]),
}
IGNORING: Variants = {
    name: ("NodeResourcesFit", NodeResourcesFitArgs(ignored_resources=resources, ignored_resource_groups=groups))
    for name, (resources, groups) in IGNORED.items()
}


@OF_MANY
@given(fixture=fixtures(variants=IGNORING), pod=pods("incoming"))
def test_resources_that_are_ignored(fixture: ClusterFixture, pod: Pod) -> None:
    for name, (resources, groups) in IGNORED.items():
        _agree_on_reasons(fixture, name, pod, partial(reference.fit, ignored=resources, groups=groups))


@SETTINGS
@given(data=st.data(), added=node_affinities, pod=pods("incoming"))
def test_affinity_that_the_profile_adds(data: st.DataObject, added: NodeAffinity, pod: Pod) -> None:
    fixture = data.draw(fixtures({"NodeAffinity": NodeAffinityArgs(added_affinity=added)}))
    wanted = expected(fixture, lambda machine: reference.affinity(machine, pod, added))
    assert filter_results(fixture, "NodeAffinity", pod) == wanted
    points = expected(fixture, lambda machine: reference.preferred(machine, pod, added))
    found = scores(fixture, "NodeAffinity", pod)
    assert found == points or (found is None and set(points.values()) <= {0})


SHAPES = {
    "fuller is better": [(0, 0), (100, 10)],
    "emptier is better": [(0, 10), (100, 0)],
    "corners": [(10, 3), (45, 10), (70, 1), (90, 7)],
    "flat": [(50, 4)],
}


def fit_args(strategy: str, shape: Sequence[tuple[int, int]] = ()) -> tuple[str, NodeResourcesFitArgs]:
    points = [UtilizationShapePoint(utilization=x, score=y) for x, y in shape]
    ratio = RequestedToCapacityRatio(shape=points) if shape else None
    chosen = ScoringStrategy(type=strategy, resources=RESOURCES, requested_to_capacity_ratio=ratio)
    return "NodeResourcesFit", NodeResourcesFitArgs(scoring_strategy=chosen)


STRATEGIES: Variants = {
    "least": fit_args("LeastAllocated"),
    "most": fit_args("MostAllocated"),
    **{name: fit_args("RequestedToCapacityRatio", shape) for name, shape in SHAPES.items()},
}


@OF_MANY
@given(fixture=fixtures(variants=STRATEGIES), pod=pods("incoming"))
def test_scoring_strategies(fixture: ClusterFixture, pod: Pod) -> None:
    wanted: dict[str, dict[str, Any]] = {
        "least": expected(fixture, lambda machine: reference.least_allocated(machine, pod, WEIGHTS)),
        "most": expected(fixture, lambda machine: reference.most_allocated(machine, pod, WEIGHTS)),
    }
    for name, shape in SHAPES.items():
        ratio = partial(reference.requested_to_capacity_ratio, pod=pod, weights=WEIGHTS, shape=shape)
        wanted[name] = expected(fixture, ratio)
    assert {name: scores(fixture, name, pod) for name in STRATEGIES} == wanted


BALANCED = {
    "two": ["cpu", "memory"],
    "three": ["cpu", "memory", EXTENDED],
    "one": ["memory"],
    "many": ["cpu", "memory", EXTENDED, "ephemeral-storage", "hugepages-2Mi", "pods"],
}
BALANCING: Variants = {
    name: (
        "NodeResourcesBalancedAllocation",
        NodeResourcesBalancedAllocationArgs(resources=[ResourceSpec(name=resource) for resource in resources]),
    )
    for name, resources in BALANCED.items()
}


@OF_MANY
@given(fixture=fixtures(variants=BALANCING), pod=pods("incoming"))
def test_balanced_allocation(fixture: ClusterFixture, pod: Pod) -> None:
    for name, resources in BALANCED.items():
        wanted = expected(fixture, partial(reference.balanced, pod=pod, names=resources))
        found = scores(fixture, name, pod)
        assert (name, found) == (name, None if None in wanted.values() else wanted)


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
    return LoadAwareSchedulingArgs(**changes).completed("args")


LOAD_AWARE = {
    "defaults": load_args(),
    "stale reports still count": load_args(filter_expired_node_metrics=False, node_metric_expiration_seconds=120),
    "expired nodes pass": load_args(enable_schedule_when_node_metrics_expired=True, node_metric_expiration_seconds=60),
    "production thresholds": load_args(prod_usage_thresholds={"cpu": 40}, score_according_prod_usage=True),
    "production with system": load_args(prod_usage_thresholds={"memory": 50}, prod_usage_include_sys=True),
    "weights": load_args(resource_weights={"cpu": 3, "memory": 1}, usage_thresholds={"cpu": 0, "memory": 60}),
}


LOAD_AWARE_VARIANTS: Variants = {name: ("LoadAwareScheduling", args) for name, args in LOAD_AWARE.items()}


@OF_MANY
@given(fixture=fixtures(variants=LOAD_AWARE_VARIANTS), pod=pods("incoming"))
def test_load_aware_filter(fixture: ClusterFixture, pod: Pod) -> None:
    for name, args in LOAD_AWARE.items():
        wanted = expected(fixture, partial(reference_load.load_aware_filter, pod=pod, args=args, now=NOW))
        assert (name, filter_results(fixture, name, pod)) == (name, wanted)


@OF_MANY
@given(fixture=fixtures(variants=LOAD_AWARE_VARIANTS), pod=pods("incoming"))
def test_load_aware_score(fixture: ClusterFixture, pod: Pod) -> None:
    for name, args in LOAD_AWARE.items():
        wanted = expected(fixture, partial(reference_load.load_aware_score, pod=pod, args=args, now=NOW))
        assert (name, scores(fixture, name, pod)) == (name, wanted)
