"""CustomPriority, FragmentationAware and ScaleDownBinPack."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import Cordon, DeletionCost, Eviction, Remark, Step
from tests.descheduler.clusters import FakeEvictor, evicted, make_node, make_plugin, make_pod, make_snapshot, steps

ORDER = {
    "evictionOrder": [
        {"name": "dear", "nodeSelector": {"matchLabels": {"price": "dear"}}},
        {"name": "cheap", "nodeSelector": {"matchLabels": {"price": "cheap"}}},
    ]
}
PRICES = [make_node("dear", labels={"price": "dear"}), make_node("cheap", labels={"price": "cheap"})]


def requesting(*cpus: str, node: str = "dear") -> list[Any]:
    return [make_pod(f"web-{cpu}", node, requests={"cpu": cpu}) for cpu in cpus]


def test_pods_leave_for_cheaper_nodes_the_smallest_first() -> None:
    plan = make_plugin("CustomPriority", ORDER).balance(make_snapshot(PRICES, requesting("3", "1", "2")))
    found = [step for step in steps(plan) if isinstance(step, Eviction)]
    assert [step.pod.metadata.name for step in found] == ["web-1", "web-2"]
    assert found[0].reason == "evicting from dear priority resource to lower priority resource"


def test_five_misfits_in_a_row_end_the_search() -> None:
    evictor = FakeEvictor()
    pods = [*requesting("5", "6", "7", "8", "9"), make_pod("last", "dear", requests={"cpu": "10"})]
    assert not evicted(make_plugin("CustomPriority", ORDER, evictor).balance(make_snapshot(PRICES, pods)))


def test_a_node_is_drained_only_as_a_whole() -> None:
    drain = {**ORDER, "mode": "DrainNode", "autoCordon": True}
    partly = steps(make_plugin("CustomPriority", drain).balance(make_snapshot(PRICES, requesting("1", "2", "3"))))
    assert [type(step) for step in partly] == [Remark]
    wholly = steps(make_plugin("CustomPriority", drain).balance(make_snapshot(PRICES, requesting("1", "2"))))
    reason = "drain node dear (sourcePriority=dear)"
    assert wholly[0] == Cordon("dear", True, reason)
    assert [step.reason for step in wholly[1:] if isinstance(step, Eviction)] == [reason, reason]


def test_a_drain_that_fails_gives_the_node_back() -> None:
    drain = {**ORDER, "mode": "DrainNode", "autoCordon": True}
    plan = make_plugin("CustomPriority", drain).balance(make_snapshot(PRICES, requesting("1", "2")))
    found = steps(plan, lambda step: not isinstance(step, Eviction))
    assert [type(step) for step in found] == [Cordon, Eviction, Cordon]
    assert found[-1] == Cordon("dear", False, "pod default/web-1 was not evicted")


def test_a_dry_run_cordons_nothing() -> None:
    drain = {**ORDER, "mode": "DrainNode", "autoCordon": True, "dryRun": True}
    plan = make_plugin("CustomPriority", drain).balance(make_snapshot(PRICES, requesting("1", "2")))
    assert [type(step) for step in steps(plan)] == [Eviction, Eviction]


def test_capacity_that_a_node_that_is_not_drained_would_have_taken_is_left_to_others() -> None:
    nodes = [make_node(name, labels={"price": "dear"}) for name in ("dear-1", "dear-2")]
    pods = [*requesting("2", "3", node="dear-1"), *requesting("4", node="dear-2")]
    plan = make_plugin("CustomPriority", {**ORDER, "mode": "DrainNode"}).balance(
        make_snapshot([*nodes, PRICES[1]], pods)
    )
    assert evicted(plan) == ["web-4"]


UNEVEN = [make_node("uneven", cpu="10", memory="10"), make_node("free", cpu="10", memory="10")]


def test_the_pod_leaves_that_evens_the_node_most() -> None:
    pods = [
        make_pod("cpu-small", "uneven", requests={"cpu": "2"}),
        make_pod("cpu-large", "uneven", requests={"cpu": "5"}),
        make_pod("memory", "uneven", requests={"memory": "1"}),
    ]
    found = steps(make_plugin("FragmentationAware", {}).balance(make_snapshot(UNEVEN, pods)))
    (eviction,) = [step for step in found if isinstance(step, Eviction)]
    assert eviction.pod.metadata.name == "cpu-large"
    assert eviction.reason == "fragmentation reduction: stdBefore=0.3000 stdAfter=0.0500 gain=0.2500"


def test_a_node_that_a_terminating_pod_is_about_to_even_keeps_its_pods() -> None:
    pods = [
        make_pod("leaving", "uneven", requests={"cpu": "5"}, deletionTimestamp="2026-01-01T12:00:30Z"),
        make_pod("staying", "uneven", requests={"cpu": "2"}),
    ]
    plugin = make_plugin("FragmentationAware", {}, FakeEvictor({"leaving": "terminating"}))
    assert not evicted(plugin.balance(make_snapshot(UNEVEN, pods)))


@pytest.mark.parametrize(
    ("args", "evictor"),
    [
        ({"imbalanceThreshold": 0.4}, FakeEvictor()),
        ({"minImprovementThreshold": 0.4}, FakeEvictor()),
        ({"nodeSelector": {"matchLabels": {"a": "b"}}}, FakeEvictor()),
        ({}, FakeEvictor({"cpu": "protected"})),
        ({}, FakeEvictor({}, {"cpu": "protected"})),
    ],
)
def test_when_an_uneven_node_keeps_its_pods(args: dict[str, Any], evictor: FakeEvictor) -> None:
    pods = [make_pod("cpu", "uneven", requests={"cpu": "7"})]
    assert not evicted(make_plugin("FragmentationAware", args, evictor).balance(make_snapshot(UNEVEN, pods)))


def ranked(found: list[Step]) -> dict[str, int]:
    return {step.pod.metadata.name: step.cost for step in found if isinstance(step, DeletionCost)}


SHRINKING = [
    make_pod("lonely", "a", requests={"cpu": "1"}),
    make_pod("small", "b", requests={"cpu": "1"}),
    make_pod("large", "b", requests={"cpu": "2"}),
    make_pod("other", "b", requests={"cpu": "1"}, labels={"app": "other"}),
]
TWO = [make_node("a"), make_node("b")]


def test_pods_of_nodes_that_would_be_empty_rank_first() -> None:
    args = {"podSelectors": [{"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}]}
    found = steps(make_plugin("ScaleDownBinPack", args).balance(make_snapshot(TWO, SHRINKING)))
    assert ranked(found) == {"lonely": 0, "large": 1, "small": 2}


@pytest.mark.parametrize(("selective", "marked"), [(True, True), (False, False)])
def test_pods_that_may_not_leave_rank_last_where_they_were_requested(selective: bool, marked: bool) -> None:
    args: dict[str, Any] = {"podSelectors": [{"selector": {}}]} if selective else {}
    plugin = make_plugin("ScaleDownBinPack", args, FakeEvictor({"small": "protected"}))
    assert (ranked(steps(plugin.balance(make_snapshot(TWO, SHRINKING)))).get("small") == 2**31 - 1) is marked


def test_a_rank_that_stands_there_already_is_not_written() -> None:
    marked = make_pod("web", "a", annotations={"controller.kubernetes.io/pod-deletion-cost": "0"})
    assert not steps(make_plugin("ScaleDownBinPack", {}).balance(make_snapshot(TWO, [marked])))


def test_direct_evictions_stop_at_the_limit() -> None:
    args = {"strategy": "EvictDirectly", "maxPodsToEvict": 2}
    plan = make_plugin("ScaleDownBinPack", args).balance(make_snapshot(TWO, SHRINKING))
    refused = "lonely"
    assert evicted(plan, lambda step: not isinstance(step, Eviction) or step.pod.metadata.name != refused) == [
        "large",
        "other",
    ]


@pytest.mark.parametrize(
    ("plugin", "args", "field"),
    [
        ("CustomPriority", {"evictionOrder": ORDER["evictionOrder"][:1]}, "args.evictionOrder"),
        ("CustomPriority", {"evictionOrder": [{"name": ""}, {"name": "b"}]}, "args.evictionOrder[0].name"),
        ("CustomPriority", {"evictionOrder": [ORDER["evictionOrder"][0]] * 2}, "args.evictionOrder[1].name"),
        ("CustomPriority", {"evictionOrder": [{"name": "a"}, {"name": "b"}]}, "args.evictionOrder[0].nodeSelector"),
        ("CustomPriority", {**ORDER, "mode": "Any"}, "args.mode"),
        ("FragmentationAware", {"resources": []}, "args.resources"),
        ("FragmentationAware", {"minImprovementThreshold": -1}, "args.minImprovementThreshold"),
        ("ScaleDownBinPack", {"strategy": "Any"}, "args.strategy"),
        ("ScaleDownBinPack", {"strategy": "EvictDirectly"}, "args.maxPodsToEvict"),
        ("ScaleDownBinPack", {"resourceWeights": {"cpu": 0}}, "args.resourceWeights[cpu]"),
    ],
)
def test_arguments_that_cannot_be_used(plugin: str, args: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_plugin(plugin, args)
    assert caught.value.field == field
