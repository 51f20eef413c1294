"""Batch capacity of a node, by the worked examples of the original and by what each input does to the sum."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.model.overcommit.amounts import NOTHING
from koordinator.model.overcommit.facts import pod_facts
from koordinator.model.overcommit.policies import CapacityPolicy
from tests.model.overcommit.node_objects import (
    BATCH_CPU,
    BATCH_MEMORY,
    RESERVATION,
    a_metric,
    a_node,
    a_pod,
    a_snapshot,
    decided,
    policy,
    values,
)

GIGA: Final = 10**9
PODS: Final = (
    a_pod("podA", ("20", "20G"), qos="LS"),
    a_pod("podB", qos="BE"),
    a_pod("podC", ("10", "20G"), ("10", "20G"), phase="Pending"),
    a_pod("podD", ("10", "10G"), qos="BE", phase="Succeeded"),
)
USAGE: Final = {"podA": ("11", "11G"), "podB": ("10", "10G"), "podC": ("22", "22G")}
PROD: Final = 9999
MID: Final = 7000


def reserving(**reservation: Any) -> Node:
    return a_node(annotations={RESERVATION: json.dumps(reservation)})


def batch_of(plan_values: dict[str, int | None]) -> tuple[int | None, int | None]:
    return plan_values[BATCH_CPU], plan_values[BATCH_MEMORY]


def classes(prod: str = "LS") -> list[Pod]:
    """Pods of all classes, one of which has ended."""
    return [
        a_pod("podProd", ("10", "10G"), qos=prod),
        a_pod("podProd1", ("10", "10G"), priority=PROD),
        a_pod("podBatch", ("10", "10G"), qos="BE"),
        a_pod("podMid", ("10", "20G"), ("10", "20G"), qos="BE", priority=MID, phase="Pending"),
        a_pod("podProd2", ("10", "10G"), phase="Succeeded"),
    ]


BY_REQUEST = policy(70, 80, memory_calculate_policy="request")
GENEROUS = {"memory_calculate_policy": "request", "cpu_calculate_policy": "maxUsageRequest"}
OTHER_WAY = {"memory_calculate_policy": "maxUsageRequest", "cpu_calculate_policy": "usage"}
SOME = {RESERVATION: '{"resources":{"cpu":"2","memory":"5G"}}'}


@pytest.mark.parametrize(
    ("node", "capacity", "cpu", "memory"),
    [
        (a_node(), policy(), 25_000, 33),
        (reserving(), policy(), 25_000, 33),
        (reserving(reservedCPUs="0-1"), policy(), 25_000, 33),
        (reserving(reservedCPUs="0-19"), policy(), 12_000, 33),
        (reserving(ReservedCpus="0-19"), policy(), 12_000, 33),
        (reserving(resources={"cpu": "20"}), policy(), 12_000, 33),
        (reserving(resources={"cpu": "20"}, reservedCPUs="0-9"), policy(), 22_000, 33),
        (reserving(resources={"memory": "20G"}), policy(), 25_000, 25),
        (reserving(resources={"memory": "5G"}), policy(), 25_000, 33),
        (reserving(resources={"memory": "5G", "cpu": "2"}), policy(), 25_000, 33),
        (reserving(resources={"memory": "20G", "cpu": "10"}), policy(), 22_000, 25),
        (reserving(resources={"memory": "20G"}, reservedCPUs="0-9"), policy(), 22_000, 25),
        (a_node(("100", "120G"), ("90", "100G"), SOME), policy(), 22_000, 25),
        (a_node(), BY_REQUEST, 30_000, 36),
        (reserving(resources={"memory": "5G"}), BY_REQUEST, 30_000, 31),
        (a_node(("100", "120G"), ("90", "100G"), SOME), BY_REQUEST, 27_000, 16),
        (reserving(resources={"memory": "10G"}), BY_REQUEST, 30_000, 26),
        (a_node(), policy(70, 80, **GENEROUS), 21_000, 36),
        (a_node(), policy(150, 120, **GENEROUS), 101_000, 84),
        (a_node(), policy(150, 120, **GENEROUS, batch_cpu_threshold_percent=100), 100_000, 84),
        (a_node(), policy(150, 120, **GENEROUS, batch_memory_threshold_percent=100), 101_000, 84),
        (a_node(), policy(150, 120, **GENEROUS, batch_memory_threshold_percent=50), 101_000, 60),
        (a_node(), policy(150, 120, **OTHER_WAY), 110_000, 72),
        (
            a_node(),
            policy(150, 120, **OTHER_WAY, batch_cpu_threshold_percent=100, batch_memory_threshold_percent=100),
            100_000,
            72,
        ),
        (a_node(), policy(cpu_calculate_policy="request"), 25_000, 33),
        (a_node(), policy(cpu_calculate_policy="?", memory_calculate_policy="?"), 25_000, 33),
    ],
)
def test_worked_examples(node: Node, capacity: CapacityPolicy, cpu: int, memory: int) -> None:
    plan = decided(a_snapshot(node, PODS, a_metric(USAGE)), capacity)

    assert batch_of(values(plan)) == (cpu, memory * GIGA)


@pytest.mark.parametrize(
    ("pods", "usage", "system", "cpu", "memory"),
    [
        (
            classes(),
            {"podProd": ("5", "5G"), "podProd1": ("6", "6G"), "podBatch": ("10", "10G"), "podMid": ("22", "22G")},
            ("7", "12G"),
            25_000,
            33,
        ),
        # One pod has not been measured yet, one has been and is gone.
        (classes()[:2], {"podProd": ("5", "5G"), "podProd2": ("10", "10G")}, ("5", "10G"), 35_000, 43),
        # LSE: its request counts for CPU.
        (
            classes("LSE"),
            {"podProd": ("5", "5G"), "podProd1": ("6", "6G"), "podBatch": ("10", "10G"), "podMid": ("22", "22G")},
            ("7", "12G"),
            20_000,
            33,
        ),
        # LSR: what it leaves idle may be used.
        (
            classes("LSR"),
            {"podProd": ("5", "5G"), "podProd1": ("6", "6G"), "podBatch": ("10", "10G"), "podMid": ("22", "22G")},
            ("7", "12G"),
            25_000,
            33,
        ),
    ],
)
def test_classes_of_pods(
    pods: list[Pod], usage: dict[str, tuple[str, str]], system: tuple[str, str], cpu: int, memory: int
) -> None:
    plan = decided(a_snapshot(a_node(), pods, a_metric(usage, system)), policy())

    assert batch_of(values(plan)) == (cpu, memory * GIGA)


@pytest.mark.parametrize(
    ("priority", "cpu", "memory"),
    [
        ("koord-prod", 25_000, 33),
        ("koord-mid", 25_000, 33),
        ("koord-batch", 28_000, 39),
        ("koord-free", 28_000, 39),
        ("", 28_000, 39),
    ],
)
def test_host_applications_above_batch_count_as_system(priority: str, cpu: int, memory: int) -> None:
    metric = a_metric(USAGE, ("4", "6G"), hosts={priority: ("3", "6G")})

    assert batch_of(values(decided(a_snapshot(a_node(), PODS, metric), policy()))) == (cpu, memory * GIGA)


def test_the_most_of_usage_and_request_counts_pods_without_a_metric_by_request() -> None:
    by_the_most = policy(100, 100, cpu_calculate_policy="maxUsageRequest", memory_calculate_policy="maxUsageRequest")
    pods = [a_pod("seen", ("20", "20G")), a_pod("new", ("30", "30G"))]

    plan = decided(a_snapshot(a_node(), pods, a_metric({"seen": ("5", "25G")}, None)), by_the_most)

    assert batch_of(values(plan)) == (50_000, (120 - 25 - 30) * GIGA)


@pytest.mark.parametrize(("priority", "cpu"), [("koord-batch", 58_000), ("koord-free", 58_000), ("koord-prod", 47_000)])
def test_usage_of_pods_that_are_gone_counts_by_the_reported_class(priority: str, cpu: int) -> None:
    metric = a_metric({"gone": ("11", "1G")}, priorities={"gone": priority})

    assert values(decided(a_snapshot(a_node(), [], metric), policy()))[BATCH_CPU] == cpu


def test_negative_usage_makes_no_room() -> None:
    metric = a_metric({"podA": ("-50", "-50G")}, ("-3", "-3G"))

    plan = decided(a_snapshot(a_node(), PODS[:1], metric), policy(100, 100))

    assert batch_of(values(plan)) == (100_000, 120 * GIGA)


def test_a_node_that_is_full_offers_nothing() -> None:
    plan = decided(a_snapshot(a_node(), PODS, a_metric(USAGE, ("90", "100G"))), policy())

    assert batch_of(values(plan)) == (0, 0)


@pytest.mark.parametrize(
    ("raw", "cpu"),
    [
        ('{"cpu": "80", "memory": "120G"}', 12_000),
        ('{"cpu": "80"}', 12_000),
        ('{"cpu": "200"}', 25_000),
        ("no JSON", 25_000),
    ],
)
def test_amplified_cpu_is_not_there_for_batch(raw: str, cpu: int) -> None:
    """The kubelet reserves 20 CPUs, of which 7 are those of the system's usage."""
    node = a_node(("100", "120G"), ("160", "120G"), annotations={"node.koordinator.sh/raw-allocatable": raw})

    assert batch_of(values(decided(a_snapshot(node, PODS, a_metric(USAGE)), policy()))) == (cpu, 33 * GIGA)


def test_a_reservation_that_cannot_be_read_reserves_nothing_and_is_named() -> None:
    plan = decided(a_snapshot(reserving(reservedCPUs="0-x"), PODS, a_metric(USAGE)), policy())

    assert values(plan)[BATCH_CPU] == 25_000
    assert [problem.plugin for problem in plan.problems] == ["BatchResource"]
    assert "reservation" in plan.problems[0].text
    assert "0-x" in plan.problems[0].text


def test_terms_say_what_the_sum_is_made_of() -> None:
    node = a_node(("100", "120G"), ("80", "120G"))
    plan = decided(a_snapshot(node, [*PODS, a_pod("new", ("1", "1G"))], a_metric(USAGE)), policy())

    (cpu,) = (amount for amount in plan.amounts if amount.resource == BATCH_CPU)

    assert dict(cpu.terms) == {
        "capacity": 100_000,
        "safetyMargin": -35_000,
        "systemUsage": -7000,
        "reservedAboveSystemUsage": -13_000,
        "podUsage": -33_000,
        "podsWithoutMetric": -1000,
    }
    assert cpu.value == 11_000
    assert cpu.policy == "usage"


def test_a_request_below_zero_counts_as_zero() -> None:
    given = {"metadata": {"name": "p", "namespace": "test"}, "status": {"phase": "Running"}}
    requests = {"cpu": "-10", "memory": "-10G"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    assert pod_facts(convert({**given, "spec": spec}, Pod)).requests == NOTHING
