"""Nodes that are not to be trusted: when they are found out, when they are forgiven, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import pytest

from koordinator.api.codec import convert
from koordinator.api.node import Node, NodeCondition, NodeStatus
from koordinator.api.nodemetric import NodeMetric
from koordinator.model.overcommit.abnormal_condition import CONDITION_TYPE, condition_patch, remembered
from koordinator.model.overcommit.abnormality import (
    AGENT_MISSING,
    FROZEN_READINGS,
    METRICS_STOPPED,
    NEGATIVE_USAGE,
    REPORT_FROM_THE_FUTURE,
    USAGE_ABOVE_CAPACITY,
    NodeHealth,
    next_look,
    observe,
)
from koordinator.model.overcommit.metric_facts import metric_facts
from koordinator.model.overcommit.node_facts import node_facts
from koordinator.model.overcommit.policies import CapacityPolicy
from tests.model.overcommit.node_objects import NOW, Pair, a_metric, a_node

NODE: Final = a_node(("100", "120G"))
POLICY: Final = CapacityPolicy(enable=True)
MINUTE: Final = timedelta(minutes=1)
SOUND: Final[Pair] = ("50", "55G")
ABOVE: Final[Pair] = ("106", "55G")


class Watched:
    """One node, looked at every minute or so."""

    def __init__(self, health: NodeHealth | None = None) -> None:
        self.health = health
        self.now = NOW
        self.metric: NodeMetric | None = None
        self._count = 0

    def report(self, usage: Pair | None = SOUND, updated: datetime | None = None, **given: Any) -> list[str]:
        """A report that differs from all before it in some pod's usage."""
        self._count += 1
        pods = given.pop("pods", {"p": ("1", str(self._count))})
        self.metric = a_metric(pods, usage=usage, updated=updated or self.now, **given)
        return self.look()

    def look(self) -> list[str]:
        facts = None if self.metric is None else metric_facts(self.metric)
        self.health = observe(self.health, node_facts(NODE), facts, POLICY, self.now)
        return [finding.code for finding in self.health.findings]

    def pass_minutes(self, count: float = 1) -> None:
        self.now += count * MINUTE

    def reports(self, usages: Iterable[Pair | None], **given: Any) -> list[list[str]]:
        """One a minute; the codes after each."""
        codes = []
        for usage in usages:
            codes.append(self.report(usage, **given))
            self.pass_minutes()
        return codes


def test_a_node_that_reports_what_makes_sense_is_normal() -> None:
    assert Watched().reports([SOUND] * 60) == [[]] * 60


def test_an_agent_that_never_comes_is_missed_after_a_while() -> None:
    node = Watched()

    assert node.look() == []
    node.pass_minutes(5)
    assert node.look() == [AGENT_MISSING]
    assert node.health is not None
    assert node.health.distrust == ""


def test_an_agent_that_has_never_reported_is_missed_too() -> None:
    node = Watched()
    node.metric = NodeMetric()
    node.look()
    node.pass_minutes(5)

    assert node.look() == [AGENT_MISSING]


def test_reports_that_stop_are_missed_when_they_have_expired() -> None:
    node = Watched()
    node.report()
    node.pass_minutes(15)
    assert node.look() == []
    node.pass_minutes(0.1)

    assert node.look() == [METRICS_STOPPED]


def test_usage_above_capacity_counts_when_it_lasts() -> None:
    assert Watched().reports([ABOVE] * 7) == [[]] * 5 + [[USAGE_ABOVE_CAPACITY]] * 2


@pytest.mark.parametrize("usage", [("105", "55G"), ("50", "126G"), None])
def test_usage_a_little_above_capacity_is_within_what_measuring_does(usage: Pair | None) -> None:
    assert Watched().reports([usage] * 20) == [[]] * 20


def test_usage_above_capacity_now_and_then_is_none_of_it() -> None:
    assert Watched().reports([ABOVE, ABOVE, SOUND] * 20) == [[]] * 60


def test_memory_is_looked_at_too() -> None:
    assert Watched().reports([("50", "127G")] * 6)[-1] == [USAGE_ABOVE_CAPACITY]


def test_a_node_of_unknown_capacity_is_not_judged_by_it() -> None:
    health = None
    for minute in range(20):
        metric = metric_facts(a_metric({"p": ("1", str(minute))}, updated=NOW + minute * MINUTE))
        health = observe(health, node_facts(Node()), metric, POLICY, NOW + minute * MINUTE)

    assert health is not None
    assert not health.is_abnormal


@pytest.mark.parametrize(
    "given",
    [{"pods": {"p": ("-1", "1G")}}, {"system": ("-1", "1G")}, {"hosts": {"koord-prod": ("1", "-1")}}],
)
def test_negative_usage_counts_when_it_lasts(given: dict[str, Any]) -> None:
    assert Watched().reports([SOUND] * 7, **given) == [[]] * 5 + [[NEGATIVE_USAGE]] * 2


def test_readings_that_never_change_are_no_readings() -> None:
    codes = Watched().reports([SOUND] * 32, pods={"p": ("1", "1G")})

    assert codes == [[]] * 30 + [[FROZEN_READINGS]] * 2


def test_few_equal_reports_are_not_enough() -> None:
    node = Watched()
    codes = []
    for _ in range(9):
        codes.append(node.report(pods={}))
        node.pass_minutes(10)

    assert codes == [[]] * 9


def test_a_report_that_is_looked_at_often_is_one_report() -> None:
    node = Watched()
    node.report(pods={})
    for _ in range(14):
        node.pass_minutes()
        assert node.look() == []

    assert node.health is not None
    assert node.health.same_reports == 1


def test_reports_from_the_future_are_not_believed() -> None:
    node = Watched()

    assert node.report(updated=NOW + 5 * MINUTE) == []
    assert node.report(updated=NOW + 6 * MINUTE) == [REPORT_FROM_THE_FUTURE]


def test_a_node_is_normal_again_when_all_has_been_well_for_a_while() -> None:
    node = Watched()
    node.reports([ABOVE] * 6)

    assert node.reports([SOUND] * 7) == [[USAGE_ABOVE_CAPACITY]] * 5 + [[]] * 2


def test_a_node_that_goes_back_and_forth_stays_abnormal() -> None:
    node = Watched()
    node.reports([ABOVE] * 6)
    changed = node.health.changed_at if node.health else None

    codes = node.reports(([SOUND] * 4 + [ABOVE] * 6) * 5)

    assert all(code == [USAGE_ABOVE_CAPACITY] for code in codes)
    assert node.health is not None
    assert node.health.changed_at == changed


def test_readings_that_contradict_themselves_are_not_to_be_computed_with() -> None:
    node = Watched()
    node.reports([ABOVE] * 6, pods={"p": ("-1", "1G")})

    assert node.health is not None
    assert node.health.distrust == (
        "the node is said to use more than it has, for 5 minutes and more; "
        "some usage is said to be below zero, for 5 minutes and more"
    )


def test_when_to_look_again() -> None:
    node = Watched()
    node.look()
    assert node.health is not None
    assert next_look(node.health, POLICY) == NOW + 5 * MINUTE
    node.report()
    assert next_look(node.health, POLICY) == NOW + 15 * MINUTE
    node.pass_minutes()
    node.reports([ABOVE] * 6)
    node.report()
    assert next_look(node.health, POLICY) == node.now + 5 * MINUTE


def patched(node: Node, patch: dict[str, Any] | None) -> Node:
    assert patch is not None
    (document,) = patch["status"]["conditions"]
    status = NodeStatus(conditions=[NodeCondition(type="Ready"), convert(document, NodeCondition)])
    return msgspec.structs.replace(node, status=status)


def abnormal() -> NodeHealth:
    node = Watched()
    node.reports([ABOVE] * 6)
    assert node.health is not None
    return node.health


def test_a_node_that_has_always_been_well_gets_no_condition() -> None:
    assert condition_patch(NODE, NodeHealth(first_seen=NOW, changed_at=NOW), NOW) is None


def test_the_condition_of_an_abnormal_node() -> None:
    assert condition_patch(NODE, abnormal(), NOW + 9 * MINUTE) == {
        "status": {
            "conditions": [
                {
                    "type": CONDITION_TYPE,
                    "status": "True",
                    "reason": USAGE_ABOVE_CAPACITY,
                    "message": "the node is said to use more than it has, for 5 minutes and more",
                    "lastHeartbeatTime": "2026-01-01T12:09:00Z",
                    "lastTransitionTime": "2026-01-01T12:05:00Z",
                }
            ]
        }
    }


def test_a_condition_is_written_once() -> None:
    health = abnormal()

    assert condition_patch(patched(NODE, condition_patch(NODE, health, NOW)), health, NOW + MINUTE) is None


def test_the_condition_of_a_node_that_is_normal_again() -> None:
    stored = patched(NODE, condition_patch(NODE, abnormal(), NOW))

    patch = condition_patch(stored, NodeHealth(first_seen=NOW, changed_at=NOW + 20 * MINUTE), NOW + 21 * MINUTE)

    (condition,) = (patch or {})["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "ReadingsAreSound")
    assert condition["lastTransitionTime"] == "2026-01-01T12:20:00Z"


def test_another_reason_is_no_transition() -> None:
    stored = patched(NODE, condition_patch(NODE, abnormal(), NOW))
    other = Watched(remembered(stored, NOW))
    other.pass_minutes(30)
    other.look()
    assert other.health is not None

    (condition,) = (condition_patch(stored, other.health, other.now) or {})["status"]["conditions"]

    assert condition["reason"] == AGENT_MISSING
    assert condition["lastTransitionTime"] == "2026-01-01T12:05:00Z"


def test_a_restart_does_not_forgive() -> None:
    stored = patched(NODE, condition_patch(NODE, abnormal(), NOW))
    node = Watched(remembered(stored, NOW))

    assert node.report() == [USAGE_ABOVE_CAPACITY]
    assert node.health is not None
    assert condition_patch(stored, node.health, node.now) is None
    assert node.reports([SOUND] * 7)[-1] == []


def test_a_restart_remembers_a_normal_node_as_normal() -> None:
    stored = patched(NODE, condition_patch(NODE, abnormal(), NOW))
    forgiven = patched(NODE, condition_patch(stored, NodeHealth(first_seen=NOW, changed_at=NOW), NOW))

    assert not remembered(forgiven, NOW).is_abnormal
    assert not remembered(NODE, NOW).is_abnormal
