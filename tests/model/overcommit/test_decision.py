"""When a node offers nothing, what else a plan says, and what one plugin's trouble does to the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from koordinator.api.colocation_strategy import ColocationStrategy
from koordinator.api.cpu_normalization import CPUNormalizationStrategy
from koordinator.api.node import Node, NodeStatus
from koordinator.api.node_reservation import count_cpus
from koordinator.api.nodemetric import NodeMetric, NodeMetricStatus
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.model.overcommit.decision import NodeSnapshot, decide
from koordinator.model.overcommit.node_facts import node_facts
from koordinator.model.overcommit.policies import CPU_NORMALIZATION, PLUGINS, CapacityPolicy, Policies
from tests.model.overcommit.node_objects import BATCH_CPU, NOW, a_metric, a_node, a_snapshot, a_topology, policy

AMPLIFICATION: Final = "node.koordinator.sh/resource-amplification-ratio"
NORMALIZATION: Final = "node.koordinator.sh/cpu-normalization-ratio"
ALL_RESET: Final = 4


def stretching(ratios: dict[str, float]) -> ResourceAmplificationStrategy:
    return ResourceAmplificationStrategy(enable=True, resource_amplification_ratio=ratios)


def resets(metric: NodeMetric | None, now: datetime = NOW, abnormal: str = "", enable: bool = True) -> list[str]:
    """The codes of resources that are reset."""
    capacity = CapacityPolicy(enable=enable)
    plan = decide(a_snapshot(a_node(), (), metric, abnormal=abnormal), Policies(capacity), now)
    return [amount.reset for amount in plan.amounts if amount.is_reset]


@pytest.mark.parametrize(
    ("metric", "code"),
    [
        (None, "NoNodeMetric"),
        (NodeMetric(), "NeverReported"),
        (NodeMetric(status=NodeMetricStatus(update_time=NOW)), "NoReadings"),
        (a_metric(updated=NOW - timedelta(minutes=15, seconds=1)), "MetricExpired"),
    ],
)
def test_without_a_report_of_today_nothing_is_offered(metric: NodeMetric | None, code: str) -> None:
    assert resets(metric) == [code] * ALL_RESET


def test_a_report_holds_for_as_long_as_is_configured() -> None:
    assert resets(a_metric(updated=NOW - timedelta(minutes=15))) == []


def test_readings_that_are_not_trusted_are_not_computed_with() -> None:
    assert resets(a_metric(), abnormal="it makes no sense") == ["AbnormalReadings"] * ALL_RESET


def test_a_report_that_has_expired_is_named_before_what_it_says() -> None:
    metric = a_metric(updated=NOW - timedelta(hours=1))

    assert resets(metric, abnormal="it makes no sense") == ["MetricExpired"] * ALL_RESET


def test_a_reset_says_why_in_words() -> None:
    plan = decide(a_snapshot(a_node(), (), None), Policies(policy()), NOW)

    assert {amount.message for amount in plan.amounts} == {"the node has no NodeMetric"}


def test_disabled_nodes_are_reset_and_no_longer_stretched() -> None:
    assert resets(a_metric(), enable=False) == ["DisabledInConfig"] * ALL_RESET
    plan = decide(a_snapshot(a_node(), (), a_metric()), Policies(CapacityPolicy()), NOW)

    assert plan.annotations == {AMPLIFICATION: None}
    assert plan.zones == ()


def test_a_plan_tells_when_its_report_will_have_expired() -> None:
    plan = decide(a_snapshot(a_node(), (), a_metric()), Policies(policy(degrade_time_minutes=2)), NOW)

    assert plan.recheck_at == NOW + timedelta(minutes=2, seconds=1)
    assert decide(a_snapshot(a_node(), (), a_metric()), Policies(policy()), plan.recheck_at).amounts[0].reset == ""


def test_a_degraded_node_has_nothing_to_wait_for() -> None:
    assert decide(a_snapshot(a_node(), ()), Policies(policy()), NOW).recheck_at is None


def test_trouble_of_one_plugin_leaves_the_others() -> None:
    node = a_node(labels={"node.koordinator.sh/cpu-normalization-enabled": "perhaps"})
    policies = Policies(policy(), amplification=stretching({"memory": 0.5}))

    plan = decide(a_snapshot(node, (), a_metric()), policies, NOW)

    assert [problem.plugin for problem in plan.problems] == ["CPUNormalization", "ResourceAmplification"]
    assert plan.annotations == {}
    assert not any(amount.is_reset for amount in plan.amounts)


def test_stretching_uses_the_ratio_of_the_same_plan() -> None:
    node = a_node(annotations={NORMALIZATION: "1.20"}, labels={"node.koordinator.sh/cpu-normalization-enabled": "0"})
    policies = Policies(policy(), amplification=stretching({"cpu": 1.5}))

    plan = decide(a_snapshot(node, (), a_metric()), policies, NOW)

    assert plan.annotations == {NORMALIZATION: "1.00", AMPLIFICATION: '{"cpu":1.50}'}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_plugins_that_are_switched_off_touch_nothing(plugin: str) -> None:
    whole = decide(a_snapshot(a_node(), (), a_metric(), a_topology(("50", "60G"))), Policies(policy()), NOW)
    policies = Policies(policy(), plugins=frozenset(PLUGINS) - {plugin})

    plan = decide(a_snapshot(a_node(), (), a_metric(), a_topology(("50", "60G"))), policies, NOW)

    assert plan != whole
    prefix = {"BatchResource": "kubernetes.io/batch-", "MidResource": "kubernetes.io/mid-"}.get(plugin)
    if prefix is not None:
        assert not any(amount.resource.startswith(prefix) for amount in plan.amounts)
    assert len(plan.devices) == (1 if plugin.endswith("DeviceResource") else 2)


def test_policies_that_cannot_be_read_leave_their_annotations() -> None:
    policies = Policies(policy(), normalization=None, amplification=None)

    assert decide(a_snapshot(a_node(), (), a_metric()), policies, NOW).annotations == {}


@pytest.mark.parametrize(
    ("policies", "kept"),
    [
        (Policies(policy(), normalization=None), "1.30"),
        (Policies(policy(), normalization=CPUNormalizationStrategy(enable=True)), None),
        (Policies(policy(), normalization=CPUNormalizationStrategy(enable=False)), None),
        (Policies(policy(), normalization=None, plugins=frozenset(PLUGINS) - {CPU_NORMALIZATION}), None),
    ],
    ids=["broken key", "no CPU model", "normalization is off", "plugin is off"],
)
def test_what_a_core_was_worth_is_kept_where_the_configuration_cannot_be_read(
    policies: Policies, kept: str | None
) -> None:
    node = a_node(annotations={NORMALIZATION: "1.30"})

    assert decide(a_snapshot(node, (), a_metric()), policies, NOW).kept_normalization == kept


def test_what_a_strategy_leaves_out_keeps_its_default() -> None:
    strategy = ColocationStrategy(enable=True, degrade_time_minutes=3)

    assert CapacityPolicy.from_strategy(strategy) == CapacityPolicy(enable=True, degrade_time_minutes=3)


def test_a_node_without_a_status_gets_no_mid_resources() -> None:
    bare = msgspec.structs.replace(a_node(), status=NodeStatus())
    snapshot = NodeSnapshot(node=node_facts(bare), metric=a_snapshot(bare, (), a_metric()).metric)

    plan = decide(snapshot, Policies(policy()), NOW)

    assert [amount.resource for amount in plan.amounts if amount.resource.startswith("kubernetes.io/mid")] == []
    assert plan.devices == ()


@pytest.mark.parametrize(("text", "count"), [("0-19", 20), ("0,2-3,2", 3), ("7", 1), ("5-3", 0)])
def test_lists_of_cpus(text: str, count: int) -> None:
    assert count_cpus(text) == count


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1-2-3", "1,", "0-99999999999", " 1"])
def test_lists_that_name_no_cpus(text: str) -> None:
    with pytest.raises(ValueError, match="CPU"):
        count_cpus(text)


def test_times_are_compared_in_utc() -> None:
    elsewhere = datetime.fromisoformat("2026-01-01T14:00:00+02:00")
    assert elsewhere.astimezone(UTC) == NOW

    plan = decide(a_snapshot(Node(), (), a_metric(updated=elsewhere)), Policies(policy()), NOW)

    assert all(amount.reset == "" for amount in plan.amounts if amount.resource == BATCH_CPU)
