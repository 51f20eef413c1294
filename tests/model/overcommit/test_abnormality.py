"""Nodes that are not to be trusted: when they are found out, when they are forgiven, and what is said of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from koordinator.api.node import Node, NodeCondition
from koordinator.api.quantity import MilliCPU
from koordinator.model.overcommit.abnormality import (
    AGENT_MISSING,
    FROZEN_READINGS,
    METRICS_STOPPED,
    NEGATIVE_USAGE,
    REPORT_FROM_THE_FUTURE,
    REPORT_FROM_THE_PAST,
    USAGE_ABOVE_CAPACITY,
    observe,
)
from koordinator.model.overcommit.facts import metric_facts, node_facts
from koordinator.model.overcommit.node_report import NodeReport, ReportedPercentiles, ReportedResources, ReportedUsage
from koordinator.model.slo_configuration.abnormality_limits import AbnormalityLimits
from tests.model.overcommit.node_objects import NOW, Pair, a_metric
from tests.model.overcommit.watched_nodes import ABOVE, JUST_AFTER, MINUTE, NODE, POLICY, SOUND, Watched


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
    node.metric = NodeReport()
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


def test_a_node_of_unknown_capacity_is_not_checked_by_it() -> None:
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
    assert node.next_look() == NOW + 5 * MINUTE + JUST_AFTER
    node.report()
    assert node.next_look() == NOW + 5 * MINUTE + JUST_AFTER
    node.pass_minutes(6)
    assert node.next_look() == NOW + 15 * MINUTE + JUST_AFTER
    node.pass_minutes(10)
    assert node.next_look() is None


def test_at_the_moment_that_was_named_the_response_is_there() -> None:
    node = Watched()
    node.look()
    node.now = node.next_look() or NOW

    assert node.look() == [AGENT_MISSING]


def test_a_report_that_is_taken_away_gives_the_agent_time_for_another() -> None:
    node = Watched()
    node.reports([SOUND] * 20)
    node.metric = None

    assert node.look() == []
    assert node.next_look() == node.now + 4 * MINUTE + JUST_AFTER
    node.pass_minutes(5)
    assert node.look() == [AGENT_MISSING]


def not_ready(status: str, since: datetime) -> Node:
    conditions = [NodeCondition(type="Ready", status=status, last_transition_time=since)]
    return msgspec.structs.replace(NODE, status=msgspec.structs.replace(NODE.status, conditions=conditions))


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_nobody_is_missed_on_a_node_that_is_not_ready(status: str) -> None:
    node = Watched(node=not_ready(status, NOW))
    node.report()
    node.pass_minutes(60)
    assert node.look() == []
    node.metric = None
    node.pass_minutes(60)
    assert node.look() == []


def test_a_node_that_has_just_become_ready_is_given_time() -> None:
    node = Watched(node=not_ready("False", NOW))
    node.look()
    node.pass_minutes(60)
    node.node = not_ready("True", node.now)

    assert node.look() == []
    node.pass_minutes(4)
    assert node.look() == []
    node.pass_minutes(1)
    assert node.look() == [AGENT_MISSING]


def test_a_mark_stays_while_the_node_is_not_ready() -> None:
    node = Watched()
    node.look()
    node.pass_minutes(5)
    assert node.look() == [AGENT_MISSING]
    node.node = not_ready("Unknown", node.now)
    node.pass_minutes(60)
    assert node.look() == [AGENT_MISSING]


def test_an_old_report_is_no_news_to_a_process_that_has_just_started() -> None:
    node = Watched()
    node.report(updated=NOW - 60 * MINUTE)
    node.pass_minutes(4)
    assert node.look() == []
    node.pass_minutes(1)
    assert node.look() == [METRICS_STOPPED]


def test_reports_from_the_past_are_distinguished_from_silence() -> None:
    node = Watched()
    codes = []
    for _ in range(8):
        codes.append(node.report(updated=node.now - 20 * MINUTE))
        node.pass_minutes()
    assert codes == [[]] * 5 + [[REPORT_FROM_THE_PAST]] * 3
    node.pass_minutes(14)
    assert node.look() == [REPORT_FROM_THE_PAST]
    node.pass_minutes(1)
    assert node.look() == [METRICS_STOPPED]


def test_a_clock_that_is_a_little_wrong_harms_nobody() -> None:
    for minutes in (-10, 4):
        node = Watched()
        for _ in range(40):
            assert node.report(updated=node.now + minutes * MINUTE) == []
            node.pass_minutes()


def test_a_clock_that_is_put_back_does_not_hide_usage_above_capacity() -> None:
    node = Watched()
    node.report(ABOVE, updated=NOW + 4 * MINUTE)
    node.pass_minutes()

    assert node.reports([ABOVE] * 6)[-1] == [USAGE_ABOVE_CAPACITY]


def test_one_sound_report_is_not_enough() -> None:
    node = Watched()
    node.reports([ABOVE] * 6)
    node.report()
    node.pass_minutes(10)

    assert node.look() == [USAGE_ABOVE_CAPACITY]


def test_an_agent_that_reports_too_seldom_does_not_go_back_and_forth() -> None:
    node = Watched()
    node.report()
    codes = []
    for _ in range(10):
        node.pass_minutes(16)
        codes.append(node.look())
        node.pass_minutes(6)
        codes.append(node.report())

    assert codes == [[METRICS_STOPPED]] * 20


def test_constant_readings_of_a_node_without_pods_are_believed() -> None:
    node = Watched(runs_pods=False)

    assert node.reports([SOUND] * 60, pods={}) == [[]] * 60


def test_readings_of_which_only_a_percentile_moves_are_believed() -> None:
    node = Watched()
    for minute in range(60):
        node.metric = with_percentile(a_metric({"p": ("1", "1G")}, updated=node.now), minute)
        assert node.look() == []
        node.pass_minutes()


def with_percentile(metric: NodeReport, milli: int) -> NodeReport:
    window = ReportedPercentiles(usage={"p99": ReportedUsage(resources=ReportedResources(cpu=MilliCPU(milli)))})
    assert metric.status.node_metric is not None
    info = msgspec.structs.replace(metric.status.node_metric, aggregated_node_usages=[window])
    return msgspec.structs.replace(metric, status=msgspec.structs.replace(metric.status, node_metric=info))


def test_frozen_readings_are_frozen_until_they_keep_moving() -> None:
    node = Watched()
    node.reports([SOUND] * 32, pods={"p": ("1", "1G")})
    assert node.reports([SOUND] * 20, pods={"p": ("2", "1G")}) == [[FROZEN_READINGS]] * 20

    assert node.reports([SOUND] * 6)[-1] == []


def test_frozen_readings_are_found_again_after_another_fault() -> None:
    node = Watched()
    node.reports([SOUND] * 32, pods={"p": ("1", "1G")})

    assert node.reports([ABOVE] * 7)[-1] == [USAGE_ABOVE_CAPACITY]


def test_limits_may_be_other_ones() -> None:
    limits = AbnormalityLimits(raise_after=2 * MINUTE, clear_after=timedelta(seconds=90))
    node = Watched(limits=limits)

    codes = node.reports([ABOVE] * 4 + [SOUND] * 4)

    assert codes == [[]] * 2 + [[USAGE_ABOVE_CAPACITY]] * 4 + [[]] * 2
