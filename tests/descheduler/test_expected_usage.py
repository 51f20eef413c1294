"""LowNodeLoad with expectedHighThresholds: which nodes are going to be hot, whose pods leave, what targets can take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODE_METRICS, RECOMMENDATIONS
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.recommendation import Recommendation
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import Eviction, HotNode, Remark, Snapshot
from tests.descheduler.clusters import (
    NOW,
    evicted,
    make_metric,
    make_node,
    make_plugin,
    make_pod,
    make_snapshot,
    steps,
)
from tests.descheduler.test_program_faults import Cluster
from tests.recommending import recommendation

CPU = {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 50}, "anomalyCondition": {"consecutiveAbnormalities": 1}}
EXPECTING = {**CPU, "expectedHighThresholds": {"cpu": 50}}


def pods_of(app: str, count: int, node: str = "n1", **changes: Any) -> list[Pod]:
    return [make_pod(f"{app}-{number}", node, labels={"app": app}, age=number, **changes) for number in range(count)]


def peak(cpu: str, app: str = "web", **changes: Any) -> Recommendation:
    return recommendation(app, {"main": {"cpu": cpu}}, changes.pop("written", NOW), app=app, **changes)


def scene(
    *known: Recommendation,
    pods: Sequence[Pod] = (),
    used: str = "100m",
    cool: str = "0",
    metrics: Sequence[NodeMetric] = (),
    target: str = "4",
) -> Snapshot:
    """A node of four cores, where every pod uses little, and one of which the system uses ``cool``."""
    pods = pods or pods_of("web", 4)
    reports = metrics or [
        make_metric("n1", {pod.metadata.name: used for pod in pods if pod.spec.node_name == "n1"}),
        make_metric("n2", {pod.metadata.name: used for pod in pods if pod.spec.node_name == "n2"}, system=cool),
    ]
    return make_snapshot([make_node("n1"), make_node("n2", cpu=target)], pods, reports, recommendations=known)


def leaving(snapshot: Snapshot, args: dict[str, Any] = EXPECTING) -> list[str]:
    return evicted(make_plugin("LowNodeLoad", args).balance(snapshot))


def test_pods_leave_a_node_that_is_going_to_be_hot() -> None:
    # 4 x 600m of 4 cores are 60 percent; one that leaves takes 15 with it.
    assert leaving(scene(peak("600m"))) == ["web-0"]


def test_by_default_nothing_counts_but_what_was_measured() -> None:
    assert leaving(scene(peak("600m")), CPU) == []


@pytest.mark.parametrize(
    "silent", [peak("600m", low_confidence=True), peak("600m", written=NOW - timedelta(hours=25)), peak("600m", "db")]
)
def test_a_recommendation_that_may_not_be_used_changes_nothing(silent: Recommendation) -> None:
    assert leaving(scene(silent)) == []


def test_what_was_measured_counts_where_it_is_more() -> None:
    assert leaving(scene(peak("10m"), used="600m")) == ["web-0"]


def test_workloads_reach_their_peaks_one_at_a_time() -> None:
    """Either of them raises what is used from 400m to 2000m, which is half of the node; both would fill it."""
    pods = [*pods_of("db", 2), *pods_of("web", 2)]
    assert leaving(scene(peak("900m"), peak("900m", "db"), pods=pods)) == []
    assert len(leaving(scene(peak("910m"), peak("900m", "db"), pods=pods))) == 1


def test_the_pod_leaves_whose_leaving_relieves_the_node() -> None:
    """All are going to use as much, but the others still raise what is expected as far when the one of db has left."""
    pods = [*pods_of("db", 1), *pods_of("web", 2)]
    assert leaving(scene(peak("1300m"), peak("1300m", "db"), pods=pods)) == ["web-0"]


def test_what_is_expected_falls_with_each_pod_that_leaves() -> None:
    """One pod of either workload: with both of the other one, the node is still going to be hot."""
    pods = [*pods_of("db", 2), *pods_of("web", 2)]
    assert leaving(scene(peak("1100m"), peak("1100m", "db"), pods=pods, target="32")) == ["db-0", "web-0"]


def test_pods_that_nobody_has_measured_yet_are_going_to_use_something() -> None:
    reports = [make_metric("n1", dict.fromkeys(("web-1", "web-2", "web-3"), "100m")), make_metric("n2", {})]
    assert leaving(scene(peak("600m"), metrics=reports)) == ["web-1"]


def test_a_target_is_not_filled_beyond_what_its_own_pods_will_use() -> None:
    # It has 2000m below its threshold, of which 1150m are going to be used: so 850m, for one pod of 600m.
    pods = [*pods_of("web", 8), *pods_of("db", 1, "n2")]
    assert len(leaving(scene(peak("600m"), pods=pods))) == 3
    assert len(leaving(scene(peak("600m"), peak("1150m", "db"), pods=pods))) == 1


def test_a_node_that_is_going_to_be_hot_is_no_target() -> None:
    pods = [*pods_of("web", 4), *pods_of("db", 1, "n2")]
    assert leaving(scene(peak("2100m", "db"), pods=pods, used="600m")) == []


@pytest.mark.parametrize(("of_target", "left"), [("1000m", 2), ("1900m", 0)])
def test_pods_of_class_prod_go_where_none_is_going_to_be_hot(of_target: str, left: int) -> None:
    prod = {"prodLowThresholds": {"cpu": 10}, "prodHighThresholds": {"cpu": 20}}
    pods = [*pods_of("web", 4, spec={"priority": 9500}), *pods_of("db", 1, "n2", spec={"priority": 5500})]
    assert len(leaving(scene(peak(of_target, "db"), pods=pods, used="300m"), {**EXPECTING, **prod})) == left


def test_what_is_expected_is_not_compared_with_the_mean() -> None:
    deviation = {"useDeviationThresholds": True, "lowThresholds": {"cpu": 10}, "highThresholds": {"cpu": 10}}
    assert leaving(scene(peak("600m")), {**EXPECTING, **deviation}) == ["web-0"]


@pytest.mark.parametrize("thresholds", [{"cpu": -1}, {"pods": 50}])
def test_thresholds_of_what_nobody_expects_are_refused(thresholds: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="expectedHighThresholds"):
        make_plugin("LowNodeLoad", {**CPU, "expectedHighThresholds": thresholds})


def test_of_pods_that_are_terminating_nothing_more_is_expected() -> None:
    ending = pods_of("web", 2, deletionTimestamp=NOW + timedelta(seconds=30))
    assert leaving(scene(peak("600m"), pods=[*ending, *pods_of("db", 2)])) == []


def test_it_says_what_is_expected_and_why() -> None:
    plan = steps(make_plugin("LowNodeLoad", EXPECTING).balance(scene(peak("600m"))))
    (hot,) = [step for step in plan if isinstance(step, HotNode)]
    assert (hot.usage, hot.thresholds) == ({"expected cpu": 60}, {"expected cpu": 50})
    (eviction,) = [step for step in plan if isinstance(step, Eviction)]
    assert eviction.reason == (
        "node is overutilized, node expected cpu usage(60.00%)>threshold(50.00%); by Recommendation default/web, the "
        "pod is expected to use cpu 600m"
    )
    said = "\n".join(step.text for step in plan if isinstance(step, Remark))
    assert "more is expected of 4 pods than was measured; Recommendations that say so: 1" in said
    assert "node n1: expected cpu is with the pods of Recommendation default/web at their peak" in said


def test_it_says_when_no_recommendation_helps() -> None:
    plan = steps(make_plugin("LowNodeLoad", EXPECTING).balance(scene()))
    assert any("no Recommendation that may be used" in str(step) for step in plan)


@pytest.mark.parametrize(("args", "left"), [({"expectedHighThresholds": {"cpu": 50}}, 3), ({}, 5)])
def test_the_running_program_reads_recommendations_where_it_is_to(args: dict[str, Any], left: int) -> None:
    cluster = Cluster()
    cluster.api.put(NODE_METRICS, to_document(make_metric("hot", dict.fromkeys(cluster.left(), "100m"))))
    target = {"type": "workload", "workload": {"kind": "ReplicaSet", "name": "web"}}
    document = {**to_document(peak("600m")), "spec": {"target": target}}
    cluster.api.put(RECOMMENDATIONS, document)

    async def scenario() -> None:
        async with cluster.descheduler(**args) as descheduler:
            while not descheduler.cycles:
                await asyncio.sleep(0)

    asyncio.run(scenario())
    assert len(cluster.left()) == left
