"""Each part of each sum is named, whatever it is counted by: nobody has to guess where a number comes from."""

from __future__ import annotations

from typing import Any, Final

import pytest

from koordinator.model.overcommit.amounts import ExplainedAmount
from koordinator.model.overcommit.plan import Plan, decide
from koordinator.model.overcommit.policies import Policies
from tests.model.overcommit.node_objects import (
    NOW,
    a_metric,
    a_node,
    a_pod,
    a_snapshot,
    a_topology,
    decided,
    policy,
)

GIGA: Final = 10**9
NODE: Final = a_node(("100", "120G"), ("80", "100G"))
PODS: Final = (
    a_pod("measured", ("20", "20G"), qos="LS", priority=9000),
    a_pod("new", ("4", "4G"), qos="LS", priority=9000),
)
METRIC: Final = a_metric(
    {"measured": ("10", "30G"), "gone": ("1", "2G")},
    system=("7", "12G"),
    hosts={"koord-prod": ("3", "4G")},
    reclaimable=("6", "6G"),
)
ZONES: Final = a_topology(("50", "60G"), ("50", "60G"))


def plan(**given: Any) -> Plan:
    return decided(a_snapshot(NODE, PODS, METRIC, ZONES), policy(**given))


def parts(amount: ExplainedAmount) -> dict[str, int]:
    """Everything that is named, terms first."""
    return {**amount.inputs, **dict(amount.terms)}


def of(made: Plan, resource: str) -> ExplainedAmount:
    (amount,) = (each for each in made.amounts if each.resource == f"kubernetes.io/{resource}")
    return amount


COMMON: Final = {"capacity", "safetyMargin", "systemUsage", "hostApplications", "reserved"}
BY: Final = {
    "usage": {"podUsage", "podsWithoutMetric", "danglingPods"},
    "maxUsageRequest": {"podMaxUsageRequest", "podsWithoutMetric", "danglingPods"},
    "request": {"podRequests"},
}


@pytest.mark.parametrize(
    ("resource", "field", "by"),
    [
        *(("batch-cpu", "cpu_calculate_policy", by) for by in ("usage", "maxUsageRequest")),
        *(("batch-memory", "memory_calculate_policy", by) for by in BY),
    ],
)
def test_batch_names_each_part(resource: str, field: str, by: str) -> None:
    made = plan(**{field: by})
    amount = of(made, resource)

    assert COMMON | BY[by] <= set(parts(amount))
    assert (amount.policy, amount.metric_time) == (by, NOW)
    assert sum(each.amount for each in amount.terms) == amount.value > 0


@pytest.mark.parametrize(
    ("resource", "field", "by"),
    [
        *(("batch-cpu", "cpu_calculate_policy", by) for by in ("usage", "maxUsageRequest")),
        *(("batch-memory", "memory_calculate_policy", by) for by in BY),
    ],
)
def test_zones_name_each_part_too(resource: str, field: str, by: str) -> None:
    amounts = [each for each in plan(**{field: by}).zone_amounts if each.resource.endswith(resource)]

    assert [each.zone for each in amounts] == ["node-0", "node-1"]
    for amount in amounts:
        assert COMMON | BY[by] <= set(parts(amount))
        assert (amount.policy, amount.metric_time) == (by, NOW)
        assert amount.published == amount.value == sum(each.amount for each in amount.terms)


@pytest.mark.parametrize("resource", ["mid-cpu", "mid-memory"])
def test_mid_names_each_part(resource: str) -> None:
    amount = of(plan(mid_unallocated_percent=50), resource)

    assert set(parts(amount)) == {
        *("capacity", "nodeUsage", "unused", "systemUsage", "hostApplications", "reserved", "keptForSystem"),
        *("prodRequests", "unallocated", "prodReclaimable", "unallocatedShare"),
    }
    assert (amount.policy, amount.metric_time) == ("reclaim", NOW)
    assert sum(each.amount for each in amount.terms) == amount.value > 0


def test_what_mid_keeps_is_the_larger_of_reserved_and_used() -> None:
    memory = parts(of(plan(), "mid-memory"))

    assert (memory["systemUsage"], memory["hostApplications"]) == (12 * GIGA, 4 * GIGA)
    assert memory["reserved"] == memory["keptForSystem"] == 20 * GIGA
    assert memory["unallocated"] == memory["capacity"] - memory["keptForSystem"] - memory["prodRequests"]


@pytest.mark.parametrize("resource", ["mid-cpu", "mid-memory"])
def test_a_static_share_is_named(resource: str) -> None:
    static = {"mid_static_cpu_reserved_percent": 10, "mid_static_memory_reserved_percent": 10}
    amount = of(plan(mid_reclaim_mode="static", **static), resource)

    assert set(parts(amount)) == {"capacity", "staticReserved"}
    assert (amount.policy, amount.metric_time, amount.cap) == ("static", NOW, parts(amount)["capacity"])


def test_the_cpu_normalization_of_zones_is_named() -> None:
    node = a_node(("100", "120G"), ("80", "100G"), annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.20"})
    kept = Policies(policy(), normalization=None)

    cpu = decide(a_snapshot(node, PODS, METRIC, ZONES), kept, NOW).zone_amounts[0]

    assert cpu.published is not None
    assert [each.name for each in cpu.adjustments] == ["cpuNormalization"]
    assert cpu.published == cpu.value + cpu.adjustments[0].amount > cpu.value
