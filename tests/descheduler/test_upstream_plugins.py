"""The strategies of the Kubernetes descheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from koordinator.api.pod import Pod
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import DeschedulePlugin, Eviction, Step
from tests.descheduler.clusters import FakeEvictor, evicted, make_node, make_plugin, make_pod, make_snapshot

NODES = [make_node("a", labels={"zone": "1"}), make_node("b", labels={"zone": "2"})]
CRASHED = {"name": "main", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
ENDED = {"name": "main", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}


def leaving(
    plugin: str,
    args: dict[str, Any],
    pods: list[Pod],
    nodes: Any = NODES,
    refused: str = "",
    response: Callable[[Step], bool] = lambda step: True,
) -> list[str]:
    made = make_plugin(plugin, args, FakeEvictor({refused: "protected"}))
    snapshot = make_snapshot(nodes, pods)
    return evicted(
        made.deschedule(snapshot) if isinstance(made, DeschedulePlugin) else made.balance(snapshot), response
    )


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ({"maxPodLifeTimeSeconds": 100}, ["oldest", "old"]),
        ({"maxPodLifeTimeSeconds": 200}, ["oldest"]),
        ({"states": ["Failed"]}, ["oldest"]),
        ({"states": ["CrashLoopBackOff"]}, ["old"]),
        ({"states": ["OOMKilled"]}, ["oldest"]),
        ({"exitCodes": [137]}, ["oldest"]),
        ({"exitCodes": [1]}, []),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, ["young"]),
        ({"conditions": [{"type": "Ready", "minTimeSinceLastTransitionSeconds": 61}]}, []),
        ({"conditions": [{"type": "Ready", "minTimeSinceLastTransitionSeconds": 60}]}, ["young"]),
        ({"maxPodLifeTimeSeconds": 0, "ownerKinds": {"include": ["Job"]}}, ["young"]),
        ({"maxPodLifeTimeSeconds": 0, "ownerKinds": {"exclude": ["ReplicaSet"]}}, ["young"]),
        ({"maxPodLifeTimeSeconds": 0, "labelSelector": {"matchLabels": {"app": "a"}}}, ["old"]),
        ({"maxPodLifeTimeSeconds": 0, "namespaces": {"exclude": ["default"]}}, []),
    ],
)
def test_pod_life_time(args: dict[str, Any], names: list[str]) -> None:
    not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:59:00Z"}
    pods = [
        make_pod(
            "young",
            "a",
            age=100,
            status={"conditions": [not_ready]},
            ownerReferences=[{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1"}],
        ),
        make_pod("old", "a", age=200, status={"containerStatuses": [CRASHED]}, labels={"app": "a"}),
        make_pod("oldest", "b", age=300, status={"phase": "Failed", "containerStatuses": [ENDED]}),
    ]
    assert leaving("PodLifeTime", args, pods) == names


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ({}, ["old"]),
        ({"minPodLifetimeSeconds": 0}, ["old", "young"]),
        ({"reasons": ["OOMKilled"]}, ["old"]),
        ({"reasons": ["Evicted"]}, []),
        ({"minPodLifetimeSeconds": 0, "reasons": ["Evicted"]}, ["young"]),
        ({"exitCodes": [137]}, ["old"]),
        ({"excludeOwnerKinds": ["ReplicaSet"]}, []),
    ],
)
def test_remove_failed_pods(args: dict[str, Any], names: list[str]) -> None:
    pods = [
        make_pod("old", "a", age=3600, status={"phase": "Failed", "containerStatuses": [ENDED]}),
        make_pod("young", "a", age=3599, status={"phase": "Failed", "reason": "Evicted"}),
        make_pod("running", "a"),
    ]
    assert leaving("RemoveFailedPods", args, pods) == names


def test_the_most_restarted_pods_leave_first() -> None:
    pods = [
        make_pod("some", "a", status={"containerStatuses": [{**CRASHED, "restartCount": 3}]}),
        make_pod("many", "a", status={"containerStatuses": [CRASHED]}),
        make_pod("few", "a", status={"containerStatuses": [{**CRASHED, "restartCount": 2}]}),
        make_pod("initial", "a", status={"initContainerStatuses": [CRASHED]}),
    ]
    assert leaving("RemovePodsHavingTooManyRestarts", {"podRestartThreshold": 3}, pods) == ["many", "some"]
    args = {"podRestartThreshold": 3, "includingInitContainers": True, "states": ["CrashLoopBackOff"]}
    assert leaving("RemovePodsHavingTooManyRestarts", args, pods) == ["many", "initial", "some"]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def in_zone(zone: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}


@pytest.mark.parametrize(
    ("kind", "affinity", "names"),
    [
        (REQUIRED, {REQUIRED: {"nodeSelectorTerms": [in_zone("2")]}}, ["web"]),
        (REQUIRED, {REQUIRED: {"nodeSelectorTerms": [in_zone("1")]}}, []),
        (REQUIRED, {REQUIRED: {"nodeSelectorTerms": [in_zone("3")]}}, []),
        (PREFERRED, {PREFERRED: [{"weight": 1, "preference": in_zone("2")}]}, ["web"]),
        (PREFERRED, {PREFERRED: [{"weight": 1, "preference": in_zone("1")}]}, []),
    ],
)
def test_node_affinity(kind: str, affinity: dict[str, Any], names: list[str]) -> None:
    pods = [make_pod("web", "a", spec={"affinity": {"nodeAffinity": affinity}})]
    assert leaving("RemovePodsViolatingNodeAffinity", {"nodeAffinityType": [kind]}, pods) == names


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ({}, ["plain"]),
        ({"excludedTaints": ["only"]}, []),
        ({"excludedTaints": ["only=gpu"]}, []),
        ({"includedTaints": ["other"]}, []),
        ({"includePreferNoSchedule": True}, ["plain", "tolerant"]),
    ],
)
def test_node_taints(args: dict[str, Any], names: list[str]) -> None:
    taints = [
        {"key": "only", "value": "gpu", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "hard", "effect": "NoExecute"},
    ]
    pods = [make_pod("plain", "a"), make_pod("tolerant", "a", spec={"tolerations": [{"key": "only", "value": "gpu"}]})]
    assert leaving("RemovePodsViolatingNodeTaints", args, pods, [make_node("a", taints=taints)]) == names


def test_of_pods_that_want_to_be_apart_one_stays() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    spec = {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    pods = [
        make_pod("important", "a", labels={"app": "db"}, spec={**spec, "priority": 10}),
        make_pod("lesser", "a", labels={"app": "db"}, spec={**spec, "priority": 1}),
        make_pod("elsewhere", "b", labels={"app": "db"}, spec=spec),
    ]
    assert leaving("RemovePodsViolatingInterPodAntiAffinity", {}, pods) == ["lesser"]
    assert leaving("RemovePodsViolatingInterPodAntiAffinity", {}, pods, refused="lesser") == ["important"]


def test_a_pod_that_is_terminating_already_is_in_nobody_s_way() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    spec = {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    pods = [
        make_pod("staying", "a", labels={"app": "db"}, spec=spec),
        make_pod("leaving", "a", labels={"app": "db"}, spec=spec, deletionTimestamp="2026-01-01T12:00:30Z"),
    ]
    assert leaving("RemovePodsViolatingInterPodAntiAffinity", {}, pods, refused="leaving") == []


def test_duplicates_are_spread_evenly() -> None:
    pods = [*(make_pod(f"web-{n}", "a") for n in range(4)), make_pod("single", "a", owner="other")]
    assert leaving("RemoveDuplicates", {}, pods) == ["web-2", "web-3"]
    assert leaving("RemoveDuplicates", {"excludeOwnerKinds": ["ReplicaSet"]}, pods) == []
    pinned = [make_pod(f"web-{n}", "a", spec={"nodeSelector": {"zone": "1"}}) for n in range(4)]
    assert leaving("RemoveDuplicates", {}, pinned) == []


@pytest.mark.parametrize(
    ("protected", "names"),
    [(["web-3"], ["web-2", "web-1"]), (["web-2", "web-3"], ["web-1"]), (["web-1", "web-2", "web-3"], [])],
)
def test_another_duplicate_leaves_for_one_that_may_not(protected: list[str], names: list[str]) -> None:
    pods = [make_pod(f"web-{n}", "a") for n in range(4)]

    def is_taken(step: Step) -> bool:
        return isinstance(step, Eviction) and step.pod.metadata.name not in protected

    assert leaving("RemoveDuplicates", {}, pods, response=is_taken) == names


def spread(count: int, node: str, **constraint: Any) -> list[Pod]:
    given = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **constraint,
    }
    return [
        make_pod(f"{node}-{n}", node, labels={"app": "web"}, spec={"topologySpreadConstraints": [given], "priority": n})
        for n in range(count)
    ]


def test_domains_are_evened_from_the_most_important_pods() -> None:
    name = "RemovePodsViolatingTopologySpreadConstraint"
    assert leaving(name, {}, spread(5, "a")) == ["a-3", "a-4"]
    assert leaving(name, {}, [*spread(3, "a"), *spread(2, "b")]) == []
    soft = spread(5, "a", whenUnsatisfiable="ScheduleAnyway")
    assert leaving(name, {}, soft) == []
    assert leaving(name, {"constraints": ["ScheduleAnyway"]}, soft) == ["a-3", "a-4"]


def test_domains_without_capacity_get_nothing_unless_that_is_requested() -> None:
    nodes = [NODES[0], make_node("b", labels={"zone": "2"}, pods="0")]
    name = "RemovePodsViolatingTopologySpreadConstraint"
    assert leaving(name, {}, spread(5, "a"), nodes) == []
    assert len(leaving(name, {"topologyBalanceNodeFit": False}, spread(5, "a"), nodes)) == 2


def requesting(node: str, *cpus: str) -> list[Pod]:
    return [make_pod(f"{node}-{n}", node, requests={"cpu": cpu}, spec={"priority": n}) for n, cpu in enumerate(cpus)]


def test_low_node_utilization_goes_by_requests() -> None:
    args = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 50}}
    pods = [*requesting("a", "1", "1", "1"), *requesting("b", "1")]
    assert leaving("LowNodeUtilization", args, pods) == ["a-0"]
    assert leaving("LowNodeUtilization", {**args, "numberOfNodes": 1}, pods) == []
    assert leaving("LowNodeUtilization", {**args, "evictionLimits": {"node": 0}}, pods) == []
    assert leaving("LowNodeUtilization", {**args, "evictableNamespaces": {"exclude": ["default"]}}, pods) == []


def test_what_terminating_pods_request_makes_no_node_too_full() -> None:
    args = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 50}}
    ending = make_pod("leaving", "a", requests={"cpu": "1"}, deletionTimestamp="2026-01-01T12:00:30Z")
    pods = [ending, *requesting("a", "1", "1"), *requesting("b", "1")]
    assert leaving("LowNodeUtilization", args, pods, refused="leaving") == []


def test_terminating_pods_keep_their_requests_on_targets() -> None:
    args = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 50}}
    ending = make_pod("leaving", "b", requests={"cpu": "2"}, deletionTimestamp="2026-01-01T12:00:30Z")
    assert leaving("LowNodeUtilization", args, [*requesting("a", "1", "1", "1"), ending], refused="leaving") == []


def test_low_node_utilization_around_the_mean() -> None:
    args = {"thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 10}, "useDeviationThresholds": True}
    assert leaving("LowNodeUtilization", args, [*requesting("a", "1", "1", "1"), *requesting("b", "1")]) == ["a-0"]


def test_high_node_utilization_empties_the_least_requested_node() -> None:
    pods = [*requesting("a", "500m"), *requesting("b", "2")]
    assert leaving("HighNodeUtilization", {"thresholds": {"cpu": 20}}, pods) == ["a-0"]
    restricted = {"thresholds": {"cpu": 20}, "evictionModes": ["OnlyThresholdingResources"]}
    assert leaving("HighNodeUtilization", restricted, [make_pod("none", "a"), *requesting("b", "2")]) == []


@pytest.mark.parametrize(
    ("plugin", "args", "field"),
    [
        ("PodLifeTime", {}, "args"),
        ("PodLifeTime", {"states": ["Odd"]}, "args.states[0]"),
        ("PodLifeTime", {"conditions": [{}]}, "args.conditions[0]"),
        ("RemovePodsHavingTooManyRestarts", {}, "args.podRestartThreshold"),
        ("RemovePodsViolatingNodeAffinity", {}, "args.nodeAffinityType"),
        ("RemovePodsViolatingNodeAffinity", {"nodeAffinityType": ["any"]}, "args.nodeAffinityType[0]"),
        ("RemovePodsViolatingNodeTaints", {"includedTaints": ["a"], "excludedTaints": ["b"]}, "args.includedTaints"),
        ("RemovePodsViolatingTopologySpreadConstraint", {"constraints": ["Any"]}, "args.constraints[0]"),
        ("HighNodeUtilization", {}, "args.thresholds"),
        ("HighNodeUtilization", {"thresholds": {"cpu": 101}}, "args.thresholds[cpu]"),
        (
            "LowNodeUtilization",
            {"thresholds": {"cpu": 1}, "targetThresholds": {"memory": 1}},
            "args.targetThresholds",
        ),
        ("LowNodeUtilization", {"thresholds": {"cpu": 9}, "targetThresholds": {"cpu": 1}}, "args.thresholds[cpu]"),
        (
            "LowNodeUtilization",
            {"thresholds": {"cpu": 1}, "targetThresholds": {"cpu": 9}, "metricsUtilization": {}},
            "args.metricsUtilization",
        ),
        ("RemoveDuplicates", {"namespaces": {"include": ["a"], "exclude": ["b"]}}, "args.namespaces"),
    ],
)
def test_arguments_that_cannot_be_used(plugin: str, args: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_plugin(plugin, args)
    assert caught.value.field == field
