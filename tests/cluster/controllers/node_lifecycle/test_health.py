"""Signs of life of nodes, and the taints and zones that follow from what they say."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from koordinator.cluster.controllers.node_lifecycle.health import (
    LifeSign,
    is_silent,
    label_changes,
    last_sign,
    unknown_conditions,
)
from koordinator.cluster.controllers.node_lifecycle.taints import (
    with_lost_taint,
    with_no_schedule_taints,
)
from koordinator.cluster.controllers.node_lifecycle.zones import (
    Disruption,
    TaintQueue,
    ZoneState,
    disruption,
    eviction_rate,
    zone_state,
)
from tests.cluster.controllers.objects import NOW, ago

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def node(*taints: Taint, unschedulable: bool = False, created: datetime = NOW, **statuses: str) -> Node:
    """``statuses``: those of the conditions by their type; the heartbeat was a minute ago."""
    conditions = [
        NodeCondition(type=type_, status=status, last_heartbeat_time=ago(60)) for type_, status in statuses.items()
    ]
    return Node(
        metadata=ObjectMeta(name="n", creation_timestamp=created),
        spec=NodeSpec(taints=list(taints), unschedulable=unschedulable),
        status=NodeStatus(conditions=conditions),
    )


def keys(taints: list[Taint] | None) -> list[tuple[str, str]] | None:
    return None if taints is None else [(taint.key.rpartition("/")[2], taint.effect) for taint in taints]


def test_a_renewed_lease_is_a_sign_of_life() -> None:
    first = last_sign(None, node(Ready="True"), "1", 100.0, NOW)
    same = last_sign(first, node(Ready="True"), "1", 130.0, NOW)
    renewed = last_sign(same, node(Ready="True"), "2", 140.0, NOW)
    assert [sign.seen for sign in (first, same, renewed)] == [100.0, 100.0, 140.0]


def test_a_heartbeat_is_a_sign_of_life() -> None:
    before = LifeSign(100.0, ago(3600), "1")
    assert last_sign(before, node(Ready="True"), "1", 140.0, NOW).seen == 140.0


def test_a_lease_that_is_deleted_is_no_sign_of_life() -> None:
    before = last_sign(None, node(Ready="True"), "1", 100.0, NOW)
    assert last_sign(before, node(Ready="True"), "", 140.0, NOW).seen == 100.0


@pytest.mark.parametrize(("age", "silent"), [(50.0, False), (50.1, True)])
def test_a_node_is_silent_after_the_grace_period(age: float, silent: bool) -> None:
    assert is_silent(LifeSign(0.0, None, ""), node(Ready="True"), age) is silent


def test_a_node_that_has_never_reported_has_a_minute_from_its_creation() -> None:
    young, old = node(created=ago(60)), node(created=ago(61))
    assert [is_silent(last_sign(None, each, "", 1000.0, NOW), each, 1000.0) for each in (young, old)] == [False, True]


def test_conditions_become_unknown_but_that_of_the_network() -> None:
    written = unknown_conditions(node(Ready="True", MemoryPressure="Unknown", NetworkUnavailable="False"), NOW)
    assert [(each["type"], each["reason"]) for each in written] == [
        ("Ready", "NodeStatusUnknown"),
        ("DiskPressure", "NodeStatusNeverUpdated"),
        ("PIDPressure", "NodeStatusNeverUpdated"),
    ]
    assert "lastHeartbeatTime" not in written[0]


def test_old_labels_follow_their_successors() -> None:
    labels = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "windows", "beta.kubernetes.io/arch": "arm"}
    assert label_changes(labels) == {"beta.kubernetes.io/os": "linux"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (node(Ready="True", MemoryPressure="False"), None),
        (node(Ready="False"), [("not-ready", "NoSchedule")]),
        (node(Ready="Unknown", PIDPressure="True"), [("pid-pressure", "NoSchedule"), ("unreachable", "NoSchedule")]),
        (node(Ready="True", unschedulable=True), [("unschedulable", "NoSchedule")]),
        (
            node(Taint(key="mine", effect="NoSchedule"), Taint(key=NOT_READY, effect="NoSchedule"), Ready="True"),
            [("mine", "NoSchedule")],
        ),
        (node(Taint(key=NOT_READY, effect="NoExecute"), Ready="True"), None),
    ],
)
def test_taints_without_eviction_follow_the_conditions(given: Node, wanted: Any) -> None:
    assert keys(with_no_schedule_taints(given, NOW)) == wanted


@pytest.mark.parametrize(
    ("given", "status", "wanted"),
    [
        (node(), "True", None),
        (node(), "Unknown", [("unreachable", "NoExecute")]),
        (node(Taint(key=UNREACHABLE, effect="NoExecute")), "Unknown", None),
        (node(Taint(key=UNREACHABLE, effect="NoExecute")), "False", [("not-ready", "NoExecute")]),
        (node(Taint(key=UNREACHABLE, effect="NoExecute")), "True", []),
        (node(Taint(key=UNREACHABLE, effect="NoSchedule")), "True", None),
    ],
)
def test_a_node_has_one_taint_that_evicts_at_most(given: Node, status: str, wanted: Any) -> None:
    assert keys(with_lost_taint(given, status, NOW + timedelta(milliseconds=1))) == wanted


@pytest.mark.parametrize(
    ("ready", "lost", "state"),
    [
        (0, 1, ZoneState.FULL),
        (1, 1, ZoneState.NORMAL),
        (1, 3, ZoneState.PARTIAL),
        (3, 3, ZoneState.NORMAL),
        (2, 3, ZoneState.PARTIAL),
        (0, 0, ZoneState.NORMAL),
    ],
)
def test_the_state_of_a_zone(ready: int, lost: int, state: ZoneState) -> None:
    assert zone_state([True] * ready + [False] * lost) is state


def test_eviction_is_slow_in_a_large_zone_most_of_which_is_lost_and_stops_in_a_small_one() -> None:
    rates = [eviction_rate(state, size) for state in (ZoneState.NORMAL, ZoneState.PARTIAL) for size in (50, 51)]
    assert rates == [0.1, 0.1, 0.0, 0.01]


def test_no_pod_is_evicted_while_every_node_is_lost() -> None:
    lost = {"a": [False], "b": [False, False]}
    begun = disruption({"a": ZoneState.FULL, "b": ZoneState.NORMAL}, lost)
    assert (begun.begins, begun.rates) == (True, {"a": 0.0, "b": 0.0})
    lasting = disruption(begun.states, lost)
    assert (lasting.begins, lasting.ends, lasting.rates["a"]) == (False, False, 0.0)
    ended = disruption(lasting.states, {"a": [True], "b": [False, False]})
    assert ended == Disruption({"a": ZoneState.NORMAL, "b": ZoneState.FULL}, {"a": 0.1, "b": 0.1}, ends=True)


def test_nodes_are_taken_in_turn_at_the_rate_of_their_zone() -> None:
    queue = TaintQueue()
    for name in ("a", "b", "a"):
        queue.add(name)
    assert queue.wait(5.0) == 0
    assert queue.take(5.0) == "a"
    assert queue.wait(8.0) == pytest.approx(7.0)
    queue.rate = 0.0
    assert queue.wait(100.0) is None
    queue.rate = 0.01
    assert queue.wait(100.0) == pytest.approx(5.0)
