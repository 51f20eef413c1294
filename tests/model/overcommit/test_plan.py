"""When a node has no batch capacity, what else a plan says, and what a problem of one plugin does to the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from koordinator.api.colocation_strategy import ColocationStrategy
from koordinator.api.cpu_normalization import CPUNormalizationStrategy
from koordinator.api.node import Node, NodeStatus
from koordinator.api.node_reservation import count_cpus
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.model.overcommit.abnormality import Finding, NodeHealth
from koordinator.model.overcommit.amounts import Term
from koordinator.model.overcommit.facts import node_facts
from koordinator.model.overcommit.node_report import NodeReport, NodeReportStatus
from koordinator.model.overcommit.plan import NodeSnapshot, Plan, decide
from koordinator.model.overcommit.policies import CPU_NORMALIZATION, PLUGINS, CapacityPolicy, Policies
from koordinator.model.slo_configuration.abnormality_limits import AbnormalityLimits
from tests.model.overcommit.node_objects import (
    BATCH_CPU,
    BATCH_MEMORY,
    NOW,
    a_metric,
    a_node,
    a_snapshot,
    a_topology,
    policy,
)

AMPLIFICATION: Final = "node.koordinator.sh/resource-amplification-ratio"
NORMALIZATION: Final = "node.koordinator.sh/cpu-normalization-ratio"
ALL_RESET: Final = 4


def amplifying(ratios: dict[str, float]) -> ResourceAmplificationStrategy:
    return ResourceAmplificationStrategy(enable=True, resource_amplification_ratio=ratios)


FROZEN: Final = NodeHealth(
    first_seen=NOW, changed_at=NOW, findings=(Finding("FrozenReadings", "all readings have been the same"),)
)


def resets(
    metric: NodeReport | None, now: datetime = NOW, health: NodeHealth | None = None, enable: bool = True
) -> list[str]:
    """The codes of resources that are reset."""
    capacity = CapacityPolicy(enable=enable)
    plan = decide(a_snapshot(a_node(), (), metric, health=health), Policies(capacity), now)
    return [amount.reset for amount in plan.amounts if amount.is_reset]


@pytest.mark.parametrize(
    ("metric", "code"),
    [
        (None, "NoNodeMetric"),
        (NodeReport(), "NeverReported"),
        (NodeReport(status=NodeReportStatus(update_time=NOW)), "NoReadings"),
        (a_metric(updated=NOW - timedelta(minutes=15, seconds=1)), "MetricExpired"),
    ],
)
def test_without_a_report_of_today_nothing_is_offered(metric: NodeReport | None, code: str) -> None:
    assert resets(metric) == [code] * ALL_RESET


def test_a_report_holds_for_as_long_as_is_configured() -> None:
    assert resets(a_metric(updated=NOW - timedelta(minutes=15))) == []


def test_readings_that_are_not_trusted_are_not_computed_with() -> None:
    assert resets(a_metric(), health=FROZEN) == ["AbnormalReadings"] * ALL_RESET


def test_a_report_that_has_expired_is_named_before_what_it_says() -> None:
    metric = a_metric(updated=NOW - timedelta(hours=1))

    assert resets(metric, health=FROZEN) == ["MetricExpired"] * ALL_RESET


def test_a_reset_says_why_in_words() -> None:
    plan = decide(a_snapshot(a_node(), (), None), Policies(policy()), NOW)

    assert {amount.message for amount in plan.amounts} == {"the node has no NodeMetric"}


def test_disabled_nodes_are_reset_and_no_longer_amplified() -> None:
    assert resets(a_metric(), enable=False) == ["DisabledInConfig"] * ALL_RESET
    plan = decide(a_snapshot(a_node(), (), a_metric()), Policies(CapacityPolicy()), NOW)

    assert plan.ratios.annotations == {AMPLIFICATION: None}
    assert plan.zones == ()


def test_a_plan_reports_when_its_report_will_have_expired() -> None:
    plan = decide(a_snapshot(a_node(), (), a_metric()), Policies(policy(degrade_time_minutes=2)), NOW)

    assert plan.recheck_at == NOW + timedelta(minutes=2, seconds=1)
    assert decide(a_snapshot(a_node(), (), a_metric()), Policies(policy()), plan.recheck_at).amounts[0].reset == ""


def test_a_degraded_node_of_unknown_health_has_nothing_to_wait_for() -> None:
    policies = Policies(policy(), abnormality=AbnormalityLimits(enable=False))

    assert decide(a_snapshot(a_node(), ()), policies, NOW).recheck_at is None


def test_a_node_without_a_report_is_looked_at_again_when_its_agent_counts_as_missing() -> None:
    plan = decide(a_snapshot(a_node(), ()), Policies(policy()), NOW)

    assert plan.recheck_at == NOW + timedelta(minutes=5, seconds=1)
    after = decide(a_snapshot(a_node(), (), health=plan.health), Policies(policy()), plan.recheck_at).health
    assert after is not None
    assert [finding.code for finding in after.findings] == ["AgentMissing"]


def test_the_same_snapshot_gives_the_same_plan() -> None:
    snapshot = a_snapshot(a_node(), (), a_metric(), a_topology(("50", "60G")))

    assert decide(snapshot, Policies(policy()), NOW) == decide(snapshot, Policies(policy()), NOW)


def test_trouble_of_one_plugin_leaves_the_others() -> None:
    node = a_node(labels={"node.koordinator.sh/cpu-normalization-enabled": "perhaps"})
    policies = Policies(policy(), amplification=amplifying({"memory": 0.5}))

    plan = decide(a_snapshot(node, (), a_metric()), policies, NOW)

    assert [problem.plugin for problem in plan.problems] == ["CPUNormalization", "ResourceAmplification"]
    assert plan.ratios.annotations == {}
    assert not any(amount.is_reset for amount in plan.amounts)


def test_stretching_uses_the_ratio_of_the_same_plan() -> None:
    node = a_node(annotations={NORMALIZATION: "1.20"}, labels={"node.koordinator.sh/cpu-normalization-enabled": "0"})
    policies = Policies(policy(), amplification=amplifying({"cpu": 1.5}))

    plan = decide(a_snapshot(node, (), a_metric()), policies, NOW)

    assert plan.ratios.annotations == {NORMALIZATION: "1.00", AMPLIFICATION: '{"cpu":1.50}'}


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

    assert decide(a_snapshot(a_node(), (), a_metric()), policies, NOW).ratios.annotations == {}


@pytest.mark.parametrize(
    ("policies", "kept"),
    [
        (Policies(policy(), normalization=None), 1.3),
        (Policies(policy(), normalization=CPUNormalizationStrategy(enable=True)), 1.0),
        (Policies(policy(), normalization=CPUNormalizationStrategy(enable=False)), 1.0),
        (Policies(policy(), normalization=None, plugins=frozenset(PLUGINS) - {CPU_NORMALIZATION}), 1.0),
    ],
    ids=["broken key", "no CPU model", "normalization is off", "plugin is off"],
)
def test_what_a_core_was_worth_is_kept_where_the_configuration_cannot_be_read(policies: Policies, kept: float) -> None:
    node = a_node(annotations={NORMALIZATION: "1.30"})

    assert decide(a_snapshot(node, (), a_metric()), policies, NOW).ratios.cpu_normalization == kept


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


ORIGIN: Final = "node.koordinator.sh/originExtendedAllocatable"
THIRD_PARTY: Final = "node.koordinator.sh/thirdPartyAllocations"
WHOLE: Final = '{"resources":{"kubernetes.io/batch-cpu":"50k","kubernetes.io/batch-memory":"120Gi"}}'


def idle(annotations: dict[str, str], capacity: tuple[str, str] = ("50", "120Gi")) -> Plan:
    """The plan for a node of which all CPU and all memory is batch capacity."""
    node = a_node(capacity, annotations=annotations)
    metric = a_metric(system=("0", "0"), usage=("0", "0"))
    return decide(a_snapshot(node, (), metric), Policies(policy(100, 100), normalization=None), NOW)


def batch(plan: Plan) -> dict[str, int | None]:
    return {each.resource: each.published for each in plan.amounts if each.resource in (BATCH_CPU, BATCH_MEMORY)}


@pytest.mark.parametrize(
    ("ratio", "expected"), [("1.11", 1109), ("1.00", 999), ("0.50", 999), ("[}", 999), (None, 999)]
)
def test_batch_cpu_is_multiplied_by_the_cpu_normalization(ratio: str | None, expected: int) -> None:
    plan = idle({} if ratio is None else {NORMALIZATION: ratio}, ("999m", "1Gi"))

    assert batch(plan) == {BATCH_CPU: expected, BATCH_MEMORY: 2**30}


def test_adjustments_are_explained() -> None:
    (cpu, memory) = idle({NORMALIZATION: "1.20", THIRD_PARTY: allocations(cpu="10000")}).amounts[2:]

    assert cpu.adjustments == (Term("cpuNormalization", 10_000), Term("thirdPartyAllocations", -10_000))
    assert (cpu.value, cpu.published) == (50_000, 50_000)
    assert (memory.adjustments, memory.published) == ((), 120 * 2**30)


def allocations(cpu: str = "10000", memory: str = "0", priority: str = "koord-batch") -> str:
    resources = f'{{"kubernetes.io/batch-cpu":"{cpu}","kubernetes.io/batch-memory":"{memory}"}}'
    return f'{{"allocations":[{{"name":"hadoop-yarn","priority":"{priority}","resources":{resources}}}]}}'


@pytest.mark.parametrize(
    ("text", "cpu", "memory"),
    [
        (allocations("10000", "10Gi"), 40_000, 110 * 2**30),
        (allocations("60000", "120Gi"), 0, 0),
        (allocations("10000", "10Gi", "koord-prod"), 50_000, 120 * 2**30),
        (allocations("-10000", "-10Gi"), 50_000, 120 * 2**30),
        (allocations("500m", "1"), 49_999, 120 * 2**30 - 1),
        ('{"allocations":[]}', 50_000, 120 * 2**30),
        ("{]", 50_000, 120 * 2**30),
    ],
)
def test_what_third_parties_have_allocated_is_taken_off(text: str, cpu: int, memory: int) -> None:
    plan = idle({THIRD_PARTY: text})

    assert batch(plan) == {BATCH_CPU: cpu, BATCH_MEMORY: memory}
    assert plan.annotations[ORIGIN] == WHOLE


def test_allocations_that_cannot_be_read_are_named() -> None:
    (problem,) = idle({THIRD_PARTY: "{]"}).problems

    assert problem.plugin == "BatchResource"
    assert THIRD_PARTY in problem.text


def test_from_a_reset_node_nothing_is_taken_off() -> None:
    plan = decide(a_snapshot(a_node(annotations={THIRD_PARTY: "{]"}), ()), Policies(policy()), NOW)

    assert [problem.plugin for problem in plan.problems if THIRD_PARTY in problem.text] == []
    assert plan.annotations[ORIGIN] == (
        '{"resources":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}'
    )


def test_what_else_the_origin_annotation_says_is_kept() -> None:
    text = '{"by":"hand","resources":{"kubernetes.io/mid-cpu":"7","kubernetes.io/batch-cpu":"1"}}'

    assert idle({ORIGIN: text}).annotations[ORIGIN] == (
        '{"by":"hand","resources":{"kubernetes.io/batch-cpu":"50k",'
        '"kubernetes.io/batch-memory":"120Gi","kubernetes.io/mid-cpu":"7"}}'
    )


@pytest.mark.parametrize("text", ["{]", "[]", '{"resources":3}'])
def test_an_origin_annotation_that_makes_no_sense_is_written_anew(text: str) -> None:
    assert idle({ORIGIN: text}).annotations[ORIGIN] == WHOLE
