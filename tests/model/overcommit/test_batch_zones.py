"""Batch capacity of NUMA zones, by the worked examples of the original and in comparison with the node."""

from __future__ import annotations

from typing import Final

import pytest

from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.model.overcommit.facts import topology_facts
from tests.model.overcommit.node_objects import (
    a_metric,
    a_node,
    a_pod,
    a_snapshot,
    a_topology,
    decided,
    policy,
    zone_values,
)

MEGA: Final = 10**6
PROD: Final = 9999
MID: Final = 7000
TWO_ZONES: Final = a_topology(("50", "62G"), ("50", "58G"))
OTHERS: Final = (
    a_pod("podProd1", ("10", "10G"), priority=PROD),
    a_pod("podBatch", ("10", "10G"), qos="BE"),
    a_pod("podMid", ("10", "20G"), ("10", "20G"), qos="BE", priority=MID, phase="Pending"),
    a_pod("podProd2", ("10", "10G"), phase="Succeeded"),
)
OTHER_USAGE: Final = {"podProd1": ("6", "6G"), "podBatch": ("10", "10G"), "podMid": ("22", "22G")}
REPORTED: Final = {"podBatch": "koord-batch", "podMid": "koord-mid", "podBatch2": "koord-batch"}


def test_one_zone_is_the_node() -> None:
    pods = [a_pod("podProd", ("10", "10G"), qos="LS"), *OTHERS]
    metric = a_metric({"podProd": ("5", "5G"), **OTHER_USAGE})

    plan = decided(a_snapshot(a_node(), pods, metric, a_topology(("100", "120G"))), policy())

    assert zone_values(plan) == {"node-0": (25_000, 33_000 * MEGA)}


def test_a_pod_bound_to_a_zone_counts_there() -> None:
    pods = [a_pod("podProd", ("10", "10G"), qos="LS", numa=[0]), *OTHERS]
    metric = a_metric({"podProd": ("5", "5G"), **OTHER_USAGE})

    plan = decided(a_snapshot(a_node(), pods, metric, TWO_ZONES), policy())

    assert zone_values(plan) == {"node-0": (10_000, 15_300 * MEGA), "node-1": (15_000, 17_700 * MEGA)}


@pytest.mark.parametrize(
    ("usage", "cpu"),
    [
        ({"podProd": ("5", "5G"), **OTHER_USAGE}, (5000, 15_000)),
        # Not measured yet, and a pod that is gone.
        ({**OTHER_USAGE, "podProd2": ("2", "4G")}, (4000, 14_000)),
        ({**OTHER_USAGE, "podProd2": ("2", "4G"), "podProd3": ("4", "8G"), "podBatch2": ("8", "8G")}, (2000, 12_000)),
    ],
)
def test_lse_pods_by_request_of_memory(usage: dict[str, tuple[str, str]], cpu: tuple[int, int]) -> None:
    pods = [a_pod("podProd", ("10", "10G"), qos="LSE", numa=[0]), *OTHERS]
    metric = a_metric(usage, priorities=REPORTED)

    plan = decided(a_snapshot(a_node(), pods, metric, TWO_ZONES), policy(memory_calculate_policy="request"))

    assert zone_values(plan) == {"node-0": (cpu[0], 5300 * MEGA), "node-1": (cpu[1], 12_700 * MEGA)}


@pytest.mark.parametrize(
    ("numa", "shares"),
    [
        (None, [1000, 1000, 1000, 1000]),
        ([1], [0, 4000, 0, 0]),
        ([1, 3], [0, 2000, 0, 2000]),
        ([1, 1], [0, 4000, 0, 0]),
        ([1, 9], [0, 4000, 0, 0]),
        ([9], [1000, 1000, 1000, 1000]),
    ],
)
def test_a_pod_is_shared_by_its_zones(numa: list[int] | None, shares: list[int]) -> None:
    four = a_topology(*[("10", "10G")] * 4)
    pods = [a_pod("p", ("4", "8G"), numa=numa)]

    plan = decided(a_snapshot(a_node(("40", "40G")), pods, a_metric(None, None), four), policy(100, 100))

    assert [10_000 - batch.cpu.value for batch in plan.zones] == shares


def test_shares_are_rounded_up() -> None:
    three = a_topology(*[("10", "10G")] * 3)
    metric = a_metric(None, ("1", "1"))

    plan = decided(a_snapshot(a_node(("30", "30G")), [], metric, three), policy(100, 100))

    assert [batch.cpu.value for batch in plan.zones] == [9666] * 3
    # A third of a byte and a thousandth is gone; what is left is read rounded up.
    assert [batch.memory.value for batch in plan.zones] == [10_000 * MEGA] * 3


def test_terms_of_a_zone_add_up_in_bytes() -> None:
    three = a_topology(*[("10", "10G")] * 3)
    pods = [a_pod(f"p{number}", ("1", f"{number}000001")) for number in range(1, 6)]

    plan = decided(a_snapshot(a_node(("30", "30G")), pods, a_metric(None, ("1", "7")), three), policy(100, 100))

    for batch in plan.zones:
        assert sum(each.amount for each in batch.memory.terms) == batch.memory.value


def test_thresholds_are_of_the_zone() -> None:
    capped = policy(100, 100, batch_cpu_threshold_percent=50, batch_memory_threshold_percent=10)

    plan = decided(a_snapshot(a_node(), [], a_metric(None, None), TWO_ZONES), capped)

    assert zone_values(plan) == {"node-0": (25_000, 6200 * MEGA), "node-1": (25_000, 5800 * MEGA)}


def test_zones_without_resources_offer_nothing() -> None:
    bare = NodeResourceTopology(zones=TWO_ZONES.zones[:0])

    assert decided(a_snapshot(a_node(), [], a_metric(), bare), policy()).zones == ()


def test_the_number_of_a_zone_comes_from_its_name() -> None:
    first, second = TWO_ZONES.zones
    swapped = topology_facts(NodeResourceTopology(zones=[second, first]))

    assert [(zone.name, zone.numa_node) for zone in swapped.zones] == [("node-1", 1), ("node-0", 0)]


POOL: Final = {"hugepages-1Gi": "40Gi", "hugepages-2Mi": "8Gi"}
"""Of 64 GiB. Zones do not tell pages of other sizes, and go without them all the same."""
ANNOTATED: Final = {"node.koordinator.sh/reservation": '{"resources":{"memory":"6Gi"}}'}


@pytest.mark.parametrize(
    ("zone", "huge_pages", "annotations", "by", "left"),
    [
        # koordlet with the gate HugePageReport: each zone lacks 24 GiB; of the system's 52 GiB, 4 are not huge pages.
        ("8Gi", "20Gi", None, "usage", 6),
        # Without the gate, zones contain the pool, and so does what is subtracted.
        ("32Gi", "0", None, "usage", 6),
        ("32Gi", None, None, "usage", 6),
        # Of what the allocatable lacks of the capacity, 2 GiB are no huge pages.
        ("8Gi", "20Gi", None, "request", 7),
        ("8Gi", "20Gi", ANNOTATED, "request", 5),
    ],
)
def test_the_pool_of_huge_pages_is_subtracted_from_zones_that_contain_it(
    zone: str, huge_pages: str | None, annotations: dict[str, str] | None, by: str, left: int
) -> None:
    node = a_node(("16", "64Gi"), ("16", "14Gi"), annotations=annotations, extended=POOL)
    zones = a_topology(("8", zone), ("8", zone), huge_pages=huge_pages)
    metric = a_metric(system=("0", "52Gi"), usage=("0", "4Gi"))

    plan = decided(a_snapshot(node, [], metric, zones), policy(100, 100, memory_calculate_policy=by))

    assert [batch.memory.value for batch in plan.zones] == [left << 30] * 2


def test_a_zone_that_a_pod_names_twice_counts_once() -> None:
    metric = a_metric({"podProd": ("5", "5G"), **OTHER_USAGE})

    def zones_of(*numa: int) -> object:
        pods = [a_pod("podProd", ("10", "10G"), qos="LS", numa=numa), *OTHERS]
        return zone_values(decided(a_snapshot(a_node(), pods, metric, TWO_ZONES), policy()))

    assert zones_of(0, 0) == zones_of(0)
