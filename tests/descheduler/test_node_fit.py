"""Where pods would find free capacity: filters over all targets at once."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.descheduler.node_fit import TargetNodes
from tests.descheduler.clusters import make_node, make_pod, make_reservation, make_snapshot

SELECTOR: dict[str, Any] = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
}
AWAY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


@pytest.mark.parametrize(
    ("node", "pod", "fits"),
    [
        ({}, {}, True),
        ({"unschedulable": True}, {}, False),
        ({"labels": {"disk": "ssd"}}, {"spec": {"nodeSelector": {"disk": "ssd"}}}, True),
        ({}, {"spec": {"nodeSelector": {"disk": "ssd"}}}, False),
        ({}, {"spec": {"affinity": SELECTOR}}, False),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, {}, False),
        ({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}, {}, True),
        (
            {"taints": [{"key": "a", "effect": "NoExecute"}]},
            {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}},
            True,
        ),
        ({"cpu": "3"}, {"requests": {"cpu": "2"}}, True),
        ({"cpu": "2500m"}, {"requests": {"cpu": "2"}}, False),
        ({}, {"requests": {"example.com/gpu": "1"}}, False),
        ({}, {"requests": {"example.com/gpu": "0"}}, True),
        ({"pods": "1"}, {}, False),
        ({"pods": "2"}, {}, True),
        ({}, {"spec": {"affinity": AWAY}}, False),
    ],
)
def test_one_target(node: dict[str, Any], pod: dict[str, Any], fits: bool) -> None:
    target = make_node("target", **node)
    there = make_pod("there", "target", requests={"cpu": "1"}, labels={"app": "db"})
    finished = make_pod("finished", "target", requests={"cpu": "1"}, status={"phase": "Succeeded"})
    targets = TargetNodes(make_snapshot([target], [there, finished]), [target])
    assert targets.fitting(make_pod("moving", "elsewhere", **pod)).tolist() == [fits]


@pytest.mark.parametrize(
    ("phase", "requests", "fits"),
    [
        ("Available", {"cpu": "2"}, False),
        ("Available", {"cpu": "1"}, True),
        ("Pending", {"cpu": "2"}, True),
        ("Succeeded", {"cpu": "2"}, True),
    ],
)
def test_what_is_reserved_for_others_is_not_free(phase: str, requests: dict[str, str], fits: bool) -> None:
    target = make_node("target", cpu="3")
    snapshot = make_snapshot([target], reservations=[make_reservation("target", phase=phase, cpu="2")])
    pod = make_pod("moving", "elsewhere", requests=requests)
    assert TargetNodes(snapshot, [target]).fitting(pod).tolist() == [fits]


def test_a_pod_to_come_has_its_slot() -> None:
    target = make_node("target", pods="1")
    snapshot = make_snapshot([target], reservations=[make_reservation("target", cpu="1")])
    assert not TargetNodes(snapshot, [target]).fitting(make_pod("moving", "elsewhere")).any()


def test_a_pod_is_never_offered_its_own_node() -> None:
    nodes = [make_node("a"), make_node("b")]
    targets = TargetNodes(make_snapshot(nodes), nodes)
    assert targets.fitting(make_pod("moving", "a")).tolist() == [False, True]


def test_what_is_booked_is_gone_until_it_is_given_back() -> None:
    nodes = [make_node("a", cpu="2")]
    targets = TargetNodes(make_snapshot(nodes), nodes)
    first, second = (make_pod(name, "b", requests={"cpu": "1500m"}) for name in ("first", "second"))
    targets.book(first, 0)
    assert not targets.fitting(second).any()
    targets.unbook(first, 0)
    assert targets.fitting(second).all()


def test_pods_that_are_booked_count_for_anti_affinity() -> None:
    nodes = [make_node("a")]
    targets = TargetNodes(make_snapshot(nodes), nodes)
    targets.book(make_pod("first", "b", labels={"app": "db"}), 0)
    assert not targets.fitting(make_pod("second", "b", spec={"affinity": AWAY})).any()
