"""LowNodeLoad: which nodes are hot, which pods leave them, and how far the free capacity on the others goes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.timestamps import format_time
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import Eviction, Remark, Step
from tests.descheduler.clusters import (
    NOW,
    FakeEvictor,
    evicted,
    make_metric,
    make_node,
    make_plugin,
    make_pod,
    make_reservation,
    make_snapshot,
    steps,
)
from tests.examples import examples

AT_ONCE = {"consecutiveAbnormalities": 1}
CPU = {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 50}, "anomalyCondition": AT_ONCE}


def hot_and_cool(
    count: int = 7, usage: str = "400m", cool: str = "400m", cpu: str = "4"
) -> tuple[list[Node], list[Pod], list[NodeMetric]]:
    """The example of the documentation: a node with many pods, one that is nearly idle, one that is cordoned."""
    pods = [make_pod(f"web-{number}", "hot", age=number) for number in range(count)]
    return (
        [make_node("hot"), make_node("cool", cpu=cpu), make_node("closed", unschedulable=True)],
        pods,
        [
            make_metric("hot", {pod.metadata.name: usage for pod in pods}, system="200m"),
            make_metric("cool", {}, system=cool),
            make_metric("closed", {}),
        ],
    )


def test_pods_leave_until_the_node_is_below_its_threshold() -> None:
    plugin = make_plugin("LowNodeLoad", CPU)
    assert evicted(plugin.balance(make_snapshot(*hot_and_cool()))) == ["web-0", "web-1", "web-2"]


MEMORY = {"lowThresholds": {"memory": 30}, "highThresholds": {"memory": 50}, "anomalyCondition": AT_ONCE}


@pytest.mark.parametrize(("system", "leaving"), [("50Gi", []), ("56Gi", ["web"])])
def test_the_pool_of_huge_pages_makes_no_node_hot(system: str, leaving: list[str]) -> None:
    """Of 64 GiB, 48 are huge pages: the kubelet takes them off the allocatable, koordlet counts them to the system."""
    huge = {"memory": "64Gi", "hugepages-2Mi": "16Gi", "hugepages-1Gi": "32Gi"}
    nodes = [make_node("pool", capacity=huge), make_node("cool")]
    metrics = [
        make_metric("pool", {"web": "0"}, system_memory=system, memory={"web": "1Gi"}),
        make_metric("cool", {}),
    ]
    snapshot = make_snapshot(nodes, [make_pod("web", "pool")], metrics)
    assert evicted(make_plugin("LowNodeLoad", MEMORY).balance(snapshot)) == leaving


def test_reason_names_usage_and_threshold() -> None:
    plan = make_plugin("LowNodeLoad", CPU).balance(make_snapshot(*hot_and_cool()))
    reasons = [step.reason for step in steps(plan) if isinstance(step, Eviction)]
    assert reasons[0] == "node is overutilized, node cpu usage(75.00%)>threshold(50.00%)"
    assert reasons[2] == "node is overutilized, node cpu usage(55.00%)>threshold(50.00%)"


def test_a_pod_that_was_not_evicted_frees_nothing() -> None:
    plan = make_plugin("LowNodeLoad", CPU).balance(make_snapshot(*hot_and_cool()))

    def refuses_first(step: Step) -> bool:
        return not isinstance(step, Eviction) or step.pod.metadata.name != "web-0"

    assert evicted(plan, refuses_first) == ["web-1", "web-2", "web-3"]


def test_targets_take_no_more_than_they_have_capacity_for() -> None:
    # 2000m - 1100m: room for two pods of 400m, and a little of a third.
    plan = make_plugin("LowNodeLoad", {**CPU, "nodeFit": False}).balance(make_snapshot(*hot_and_cool(cool="1100m")))
    assert len(evicted(plan)) == 3


def test_with_node_fit_every_candidate_has_a_place_of_its_own() -> None:
    plan = make_plugin("LowNodeLoad", CPU).balance(make_snapshot(*hot_and_cool(cool="1100m")))
    assert len(evicted(plan)) == 2


def test_two_evicted_pods_never_count_on_the_same_requests() -> None:
    nodes, _, metrics = hot_and_cool()
    pods = [make_pod(f"web-{number}", "hot", requests={"cpu": "3"}, age=number) for number in range(7)]
    assert len(evicted(make_plugin("LowNodeLoad", CPU).balance(make_snapshot(nodes, pods, metrics)))) == 1


@pytest.mark.parametrize(("reserved", "leaving"), [("1", 3), ("3", 1), ("4", 0)])
def test_what_is_reserved_for_pods_of_an_earlier_cycle_is_not_counted_on_again(reserved: str, leaving: int) -> None:
    nodes, _, metrics = hot_and_cool()
    pods = [make_pod(f"web-{number}", "hot", requests={"cpu": "1"}, age=number) for number in range(7)]
    snapshot = make_snapshot(nodes, pods, metrics, reservations=[make_reservation("cool", cpu=reserved)])
    assert len(evicted(make_plugin("LowNodeLoad", CPU).balance(snapshot))) == leaving


@pytest.mark.parametrize("broken", ["absent", "old", "never", "ahead"])
def test_a_node_without_a_report_is_neither_source_nor_target(broken: str) -> None:
    nodes, pods, metrics = hot_and_cool()
    metric = {
        "old": make_metric("cool", {}, age=200),
        "never": NodeMetric(metadata=metrics[1].metadata),
        "ahead": make_metric("cool", {}, age=-180),
    }.get(broken)
    snapshot = make_snapshot(nodes, pods, [metrics[0], *([metric] if metric else [])])
    plan = steps(make_plugin("LowNodeLoad", CPU).balance(snapshot))
    assert not [step for step in plan if isinstance(step, Eviction)]
    assert any(isinstance(step, Remark) and "cool is left out" in step.text for step in plan)


def with_leaving(count: int, ends: float) -> tuple[list[Node], list[Pod], list[NodeMetric]]:
    """The example, of whose hot pods so many are to have ended ``ends`` seconds from now."""
    nodes, pods, metrics = hot_and_cool()
    until = format_time(NOW + timedelta(seconds=ends))
    leaving = [make_pod(pod.metadata.name, "hot", deletionTimestamp=until) for pod in pods[:count]]
    return nodes, [*leaving, *pods[count:]], metrics


def balanced(nodes: list[Node], pods: list[Pod], metrics: list[NodeMetric], args: dict[str, Any] = CPU) -> list[str]:
    """Who is evicted where terminating pods are refused, as every evictor does."""
    leaving = {pod.metadata.name: "terminating" for pod in pods if pod.metadata.deletion_timestamp is not None}
    return evicted(make_plugin("LowNodeLoad", args, FakeEvictor(leaving)).balance(make_snapshot(nodes, pods, metrics)))


@pytest.mark.parametrize(("count", "names"), [(1, ["web-1", "web-2"]), (2, ["web-2"]), (3, []), (5, [])])
def test_what_terminating_pods_use_is_given_back_already(count: int, names: list[str]) -> None:
    assert balanced(*with_leaving(count, 300)) == names


@pytest.mark.parametrize(("count", "names"), [(1, ["web-1", "web-2"]), (3, [])])
def test_what_pods_used_that_are_gone_since_the_report_makes_no_node_hot(count: int, names: list[str]) -> None:
    nodes, pods, metrics = hot_and_cool()
    assert balanced(nodes, pods[count:], metrics) == names


def test_pods_that_are_gone_take_the_capacity_of_a_target_until_a_report_shows_it() -> None:
    nodes, pods, metrics = hot_and_cool()
    metrics[1] = make_metric("cool", {"gone": "1500m"})
    assert balanced(nodes, pods, metrics) == []


def test_a_pod_that_should_have_ended_is_not_counted_on() -> None:
    assert len(balanced(*with_leaving(3, -31))) == 3


def test_terminating_pods_take_the_capacity_of_a_target_until_they_have_ended() -> None:
    nodes, pods, metrics = hot_and_cool()
    pods.append(make_pod("ending", "cool", deletionTimestamp=format_time(NOW + timedelta(seconds=30))))
    metrics[1] = make_metric("cool", {"ending": "1500m"})
    assert balanced(nodes, pods, metrics) == []


def test_a_hot_node_whose_prod_pods_leave_is_no_target_for_prod_pods() -> None:
    nodes, pods, metrics = with_leaving(4, 30)
    prod = {"prodLowThresholds": {"cpu": 10}, "prodHighThresholds": {"cpu": 20}}
    pods += [make_pod(f"prod-{number}", "cool", spec={"priority": 9500}) for number in range(3)]
    metrics[1] = make_metric("cool", {f"prod-{number}": "500m" for number in range(3)})
    assert balanced(nodes[:2], pods, metrics, {**CPU, **prod}) == []


def test_a_report_by_a_clock_that_is_a_little_ahead_counts() -> None:
    nodes, pods, metrics = hot_and_cool()
    metrics[1] = make_metric("cool", {}, system="400m", age=-179)
    assert len(evicted(make_plugin("LowNodeLoad", CPU).balance(make_snapshot(nodes, pods, metrics)))) == 3


def test_a_threshold_beyond_all_reason_is_never_reached() -> None:
    args = {**CPU, "highThresholds": {"cpu": 1e300}}
    assert evicted(make_plugin("LowNodeLoad", args).balance(make_snapshot(*hot_and_cool()))) == []


def test_a_hot_node_is_believed_at_the_sixth_cycle() -> None:
    plugin = make_plugin("LowNodeLoad", {**CPU, "anomalyCondition": {}})
    counts = [len(evicted(plugin.balance(make_snapshot(*hot_and_cool(), monotonic=10 * n)))) for n in range(6)]
    assert counts == [0, 0, 0, 0, 0, 3]


def test_a_cool_cycle_breaks_the_run() -> None:
    plugin = make_plugin("LowNodeLoad", {**CPU, "anomalyCondition": {}})
    for cycle in range(10):
        nodes, pods, metrics = hot_and_cool()
        if cycle == 4:
            metrics[0] = make_metric("hot", {}, system="1700m")
        found = evicted(plugin.balance(make_snapshot(nodes, pods, metrics, monotonic=10 * cycle)))
        assert not found, cycle


def test_detectors_that_were_not_used_for_long_start_anew() -> None:
    plugin = make_plugin("LowNodeLoad", {**CPU, "anomalyCondition": {}})
    for cycle in range(12):
        assert not evicted(plugin.balance(make_snapshot(*hot_and_cool(), monotonic=400 * cycle)))


def test_pods_of_class_prod_leave_a_node_that_is_fine_as_a_whole() -> None:
    nodes = [make_node("hot", cpu="10"), make_node("cool", cpu="10")]
    pods = [
        make_pod("batch", "hot", spec={"priority": 5500}),
        *(make_pod(f"prod-{n}", "hot", spec={"priority": 9000 + n}) for n in range(3)),
    ]
    metrics = [
        make_metric("hot", {"batch": "1", "prod-0": "1", "prod-1": "1", "prod-2": "1"}),
        make_metric("cool", {}, system="1"),
    ]
    args = {
        "lowThresholds": {"cpu": 30},
        "highThresholds": {"cpu": 70},
        "prodLowThresholds": {"cpu": 10},
        "prodHighThresholds": {"cpu": 25},
        "anomalyCondition": AT_ONCE,
    }
    found = steps(make_plugin("LowNodeLoad", args).balance(make_snapshot(nodes, pods, metrics)))
    reasons = [(step.pod.metadata.name, step.reason) for step in found if isinstance(step, Eviction)]
    assert reasons == [("prod-0", "node is overutilized, prod cpu usage(30.00%)>threshold(25.00%)")]


def test_usage_that_just_covers_the_excess_leaves_first() -> None:
    nodes = [make_node("hot"), make_node("cool", cpu="16")]
    usages = {"small": "300m", "fitting": "650m", "large": "1500m"}
    metrics = [make_metric("hot", usages, system="150m"), make_metric("cool", {})]
    pods = [make_pod(name, "hot") for name in usages]
    assert evicted(make_plugin("LowNodeLoad", CPU).balance(make_snapshot(nodes, pods, metrics))) == ["fitting"]


def test_pods_without_a_report_count_with_their_requests() -> None:
    """They are part of what the system uses: of four, two make up for the excess of 200m."""
    pods = [make_pod(f"new-{number}", "hot", requests={"cpu": "150m"}, age=number) for number in range(4)]
    metrics = [make_metric("hot", {}, system="2200m"), make_metric("cool", {})]
    plugin = make_plugin("LowNodeLoad", {**CPU, "nodeFit": False})
    plan = plugin.balance(make_snapshot([make_node("hot"), make_node("cool")], pods, metrics))
    reasons = {step.pod.metadata.name: step.reason for step in steps(plan) if isinstance(step, Eviction)}
    assert reasons == {
        "new-0": "node is overutilized, node cpu usage(55.00%)>threshold(50.00%)",
        "new-1": "node is overutilized, node cpu usage(51.25%)>threshold(50.00%)",
    }


def test_deviation_thresholds_are_around_the_mean() -> None:
    nodes = [make_node(name) for name in ("hot", "mean", "cool")]
    usages = {f"web-{n}": "500m" for n in range(6)}
    metrics = [make_metric("hot", usages), make_metric("mean", {}, system="2"), make_metric("cool", {}, system="1")]
    args = {
        "useDeviationThresholds": True,
        "lowThresholds": {"cpu": 10},
        "highThresholds": {"cpu": 10},
        "anomalyCondition": AT_ONCE,
    }
    # The mean is 50 %: hot is above 60 %, cool below 40 % and may be filled up to 60 %.
    pods = [make_pod(name, "hot") for name in usages]
    assert len(evicted(make_plugin("LowNodeLoad", args).balance(make_snapshot(nodes, pods, metrics)))) == 2


def test_raw_allocatable_counts_where_the_annotation_names_the_resource() -> None:
    nodes, pods, metrics = hot_and_cool()
    nodes[0] = make_node("hot", cpu="8", annotations={"node.koordinator.sh/raw-allocatable": '{"cpu":"4"}'})
    assert len(evicted(make_plugin("LowNodeLoad", CPU).balance(make_snapshot(nodes, pods, metrics)))) == 3


def test_a_pool_leaves_alone_what_an_earlier_one_has_relieved() -> None:
    nodes, pods, metrics = hot_and_cool(cpu="16")
    pool = {"name": "again", "nodeSelector": {}, "lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 40}}
    args = {**CPU, "nodePools": [{**pool, "anomalyCondition": AT_ONCE}]}
    assert len(evicted(make_plugin("LowNodeLoad", args).balance(make_snapshot(nodes, pods, metrics)))) == 3


def test_number_of_nodes_that_must_be_low() -> None:
    args = {**CPU, "numberOfNodes": 1}
    assert not evicted(make_plugin("LowNodeLoad", args).balance(make_snapshot(*hot_and_cool())))


def test_pods_that_filters_refuse_stay() -> None:
    evictor = FakeEvictor({f"web-{n}": "protected" for n in range(6)})
    plan = make_plugin("LowNodeLoad", CPU, evictor).balance(make_snapshot(*hot_and_cool()))
    assert evicted(plan) == ["web-6"]


@pytest.mark.parametrize(
    ("args", "leaving"),
    [
        ({"evictableNamespaces": {"exclude": ["default"]}}, []),
        ({"evictableNamespaces": {"include": ["default"]}}, ["web-0", "web-1", "web-2"]),
        ({"podSelectors": [{"selector": {"matchLabels": {"app": "web"}}}]}, ["web-5", "web-6"]),
    ],
)
def test_the_arguments_say_which_pods_may_leave(args: dict[str, Any], leaving: list[str]) -> None:
    nodes, pods, metrics = hot_and_cool()
    labelled = [make_pod(f"web-{number}", "hot", age=number, labels={"app": "web"}) for number in (5, 6)]
    plan = make_plugin("LowNodeLoad", {**CPU, **args}).balance(make_snapshot(nodes, [*pods[:5], *labelled], metrics))
    assert evicted(plan) == leaving


def test_paused_does_nothing() -> None:
    plan = make_plugin("LowNodeLoad", {**CPU, "paused": True}).balance(make_snapshot(*hot_and_cool()))
    assert steps(plan) == [Remark("LowNodeLoad is paused and will do nothing.")]


def test_dry_run_proposes_without_evicting() -> None:
    plan = make_plugin("LowNodeLoad", {**CPU, "dryRun": True}).balance(make_snapshot(*hot_and_cool()))
    found = [step for step in steps(plan) if isinstance(step, Eviction)]
    assert len(found) == 3
    assert all(step.dry_run for step in found)


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"numberOfNodes": -1}, "args.numberOfNodes"),
        ({"nodeMetricExpirationSeconds": 0}, "args.nodeMetricExpirationSeconds"),
        ({"lowThresholds": {"cpu": -1}}, "args.lowThresholds[cpu]"),
        ({"highThresholds": {"cpu": float("inf")}}, "args.highThresholds[cpu]"),
        ({"highThresholds": {"cpu": float("nan")}}, "args.highThresholds[cpu]"),
        ({"lowThresholds": {"cpu": 60}, "highThresholds": {"cpu": 50}}, "args.lowThresholds[cpu]"),
        ({"highThresholds": {"cpu": 50}, "prodHighThresholds": {"cpu": 60}}, "args.prodHighThresholds[cpu]"),
        ({"prodLowThresholds": {"cpu": 9}, "prodHighThresholds": {"cpu": 5}}, "args.prodLowThresholds[cpu]"),
        ({"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}, "args.evictableNamespaces"),
        ({"nodePools": [{"lowThresholds": {"cpu": -1}}]}, "args.nodePools[0].lowThresholds[cpu]"),
        ({"anomalyCondition": {"consecutiveNormalities": -1}}, "args.anomalyCondition.consecutiveNormalities"),
        ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "args.nodeSelector"),
        ({"tresholds": {}}, "args.tresholds"),
    ],
)
def test_arguments_that_cannot_be_used(args: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_plugin("LowNodeLoad", args)
    assert caught.value.field == field


@settings(max_examples=examples(60), deadline=None)
@given(
    usages=st.lists(st.integers(50, 1500), min_size=1, max_size=12),
    cool=st.lists(st.integers(0, 1100), min_size=1, max_size=4),
    refused=st.sets(st.integers(0, 11)),
    fit=st.booleans(),
)
def test_no_target_is_filled_beyond_its_threshold_and_no_source_is_emptied_for_nothing(
    usages: list[int], cool: list[int], refused: set[int], fit: bool
) -> None:
    """The sum of what is moved fits into the sum of the capacity but for the last pod, and each pod was moved off a
    node that was over its threshold."""
    nodes = [make_node("hot"), *(make_node(f"cool-{n}") for n in range(len(cool)))]
    pods = [make_pod(f"web-{n}", "hot") for n in range(len(usages))]
    metrics = [
        make_metric("hot", {f"web-{n}": f"{usage}m" for n, usage in enumerate(usages)}),
        *(make_metric(f"cool-{n}", {}, system=f"{used}m") for n, used in enumerate(cool)),
    ]
    plan = make_plugin("LowNodeLoad", {**CPU, "nodeFit": fit}).balance(make_snapshot(nodes, pods, metrics))
    names = {f"web-{n}" for n in refused}
    found = evicted(plan, lambda step: not isinstance(step, Eviction) or step.pod.metadata.name not in names)
    moved = [usages[int(name.removeprefix("web-"))] for name in found]
    load, capacity = sum(usages), sum(2000 - used for used in cool)
    for amount in moved:
        assert load > 2000
        assert capacity > 0
        load, capacity = load - amount, capacity - amount
    if fit:
        assert capacity >= 0
    assert names.isdisjoint(found)
