"""Mid capacity, by the worked examples of the original."""

from __future__ import annotations

from typing import Any, Final

import pytest

from koordinator.model.overcommit.node_report import NodeReport
from tests.model.overcommit.node_objects import Pair, a_metric, a_node, a_pod, a_snapshot, decided, policy, values

GIGA: Final = 10**9
NODE: Final = a_node(("100", "210G"), ("100", "200G"))
PODS: Final = (
    a_pod("podA", ("20", "40G"), qos="LS", priority=9000),
    a_pod("podB", ("15", "30G"), qos="BE", priority=5999),
    a_pod("podC", ("15", "30G"), qos="LS", priority=9000, phase="Succeeded"),
)
CAPS: Final = {"mid_cpu_threshold_percent": 10, "mid_memory_threshold_percent": 20, "mid_unallocated_percent": 10}
STATIC: Final = {**CAPS, "mid_reclaim_mode": "static"}


def metric(usage: Pair | None, reclaimable: Pair | None = None, **given: Any) -> NodeReport:
    return a_metric(None, None, usage, reclaimable=reclaimable, **given)


@pytest.mark.parametrize(
    ("report", "given", "cpu", "memory"),
    [
        (metric(("20", "45G"), ("10", "15G")), {}, 10_000, 15),
        (metric(("30", "50G"), ("15", "30G")), CAPS, 10_000, 42),
        (metric(("30", "50G"), ("15", "30G")), {"mid_unallocated_percent": 10}, 23_000, 46),
        (metric(("30", "50G")), {}, 0, 0),
        # A node that says nothing of its usage has nothing unused.
        (metric(None, ("20", "20G")), {}, 0, 0),
        (metric(("90", "200G"), ("20", "20G")), {}, 10_000, 10),
        (metric(("120", "250G"), ("20", "20G")), {}, 0, 0),
        (metric(("20", "45G"), ("-10", "-15G")), {}, 0, 0),
        (
            metric(("30", "50G"), ("15", "30G")),
            {**STATIC, "mid_static_cpu_reserved_percent": 10, "mid_static_memory_reserved_percent": 10},
            10_000,
            21,
        ),
        (
            metric(("30", "50G"), ("15", "30G")),
            {**STATIC, "mid_static_cpu_reserved_percent": 100, "mid_static_memory_reserved_percent": 100},
            10_000,
            42,
        ),
    ],
)
def test_worked_examples(report: NodeReport, given: dict[str, Any], cpu: int, memory: int) -> None:
    plan = decided(a_snapshot(NODE, PODS, report), policy(**given))

    assert values(plan)["kubernetes.io/mid-cpu"] == cpu
    assert values(plan)["kubernetes.io/mid-memory"] == memory * GIGA


@pytest.mark.parametrize(
    ("priority", "cpu", "memory"),
    [("koord-prod", 75_000, 155), ("koord-mid", 80_000, 160), ("koord-batch", 80_000, 160)],
)
def test_host_applications_above_mid_are_not_unallocated(priority: str, cpu: int, memory: int) -> None:
    report = metric(("30", "50G"), hosts={priority: ("5", "15G")})

    plan = decided(a_snapshot(NODE, PODS, report), policy(mid_unallocated_percent=100))

    assert values(plan)["kubernetes.io/mid-cpu"] == cpu
    assert values(plan)["kubernetes.io/mid-memory"] == memory * GIGA


def test_terms_and_terms_say_where_the_amount_comes_from() -> None:
    plan = decided(a_snapshot(NODE, PODS, metric(("90", "50G"), ("15", "30G"))), policy(**CAPS))
    cpu = plan.amounts[0]

    assert dict(cpu.terms) == {"prodReclaimable": 15_000, "notUnused": -5000, "unallocatedShare": 8000}
    assert (cpu.value, cpu.cap, cpu.policy) == (10_000, 10_000, "reclaim")
    assert cpu.inputs["prodRequests"] == 20_000
    assert cpu.inputs["unallocated"] == 80_000


def test_huge_pages_are_not_unused() -> None:
    """The capacity contains the pool, and what the node uses does not."""
    node = a_node(("16", "64Gi"), ("16", "14Gi"), extended={"hugepages-2Mi": "48Gi"})
    report = a_metric(system=("1", "50Gi"), usage=("4", "10Gi"), reclaimable=("4", "12Gi"))

    plan = decided(a_snapshot(node, (), report), policy())

    assert values(plan)["kubernetes.io/mid-memory"] == 6 << 30
