"""What a node offers, as a person reads it."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from koordinator.api.codec import convert
from koordinator.api.node_explanation import OvercommitExplanation
from koordinator.cli.explain_node import print_overcommit


def printed(overcommit: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=140)
    print_overcommit(convert(overcommit, OvercommitExplanation), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def amount(resource: str, value: int, terms: dict[str, int], **more: Any) -> dict[str, Any]:
    parts = [{"name": name, "amount": part} for name, part in terms.items()]
    return {"resource": resource, "value": value, "terms": parts, "adjustments": [], **more}


def overcommit(*amounts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"amounts": list(amounts), "abnormal": [], "problems": [], **more}


CPU = amount("kubernetes.io/batch-cpu", 25_000, {"capacity": 100_000, "systemUsage": -75_000}, metricTime="then")
MEMORY = amount("kubernetes.io/batch-memory", 3 << 30, {"capacity": 4 << 30, "podUsage": -(1 << 30)})


def row(text: str, first: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.strip("│ ").startswith(first))
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_each_term_has_its_line_and_each_resource_its_column() -> None:
    text = printed(overcommit(CPU, MEMORY))
    assert row(text, "capacity") == ["capacity", "+100,000m", "+4,096Mi"]
    assert row(text, "system usage") == ["system usage", "-75,000m", ""]
    assert row(text, "pod usage") == ["pod usage", "", "-1,024Mi"]
    assert row(text, "= allocatable") == ["= allocatable", "25,000m", "3,072Mi"]


def test_free_capacity_has_a_table_of_its_own() -> None:
    free = amount("kubernetes.io/free-cpu", 20_000, {"capacity": 100_000, "batchPodUsage": -5_000})
    text = printed(overcommit(CPU, free))
    assert row(text, "system usage") == ["system usage", "-75,000m"]
    assert row(text, "batch pod usage") == ["batch pod usage", "-5,000m"]


def test_where_only_free_capacity_is_computed_there_is_one_table_with_the_time_of_its_report() -> None:
    free = amount("kubernetes.io/free-cpu", 20_000, {"capacity": 100_000}, metricTime="then")
    text = printed(overcommit(free))
    assert "Why free capacity is what it is, from the report of then" in text
    assert "batch and mid" not in text


def test_the_report_that_it_is_made_from_is_named() -> None:
    assert "from the report of then" in printed(overcommit(CPU))


def test_adjustments_come_after_the_sum() -> None:
    text = printed(overcommit(CPU | {"adjustments": [{"name": "thirdPartyAllocations", "amount": -5_000}]}))
    assert text.index("= allocatable") < text.index("third party allocations")


def test_a_cap_is_shown() -> None:
    assert row(printed(overcommit(CPU | {"cap": 30_000})), "at most") == ["at most", "30,000m"]


def test_what_is_not_offered_says_why() -> None:
    gone = amount("kubernetes.io/mid-cpu", 0, {}, reset="MetricExpired", sentence="mid-cpu is not offered: it is old")
    assert "mid-cpu is not offered: it is old" in printed(overcommit(gone))


def test_what_is_wrong_is_said_first() -> None:
    text = printed(overcommit(CPU, **abnormal(), problems=["a label cannot be read"]))
    assert text.index("the agent is silent") < text.index("a label cannot be read") < text.index("capacity")


def abnormal(**more: Any) -> dict[str, Any]:
    found = [{"reason": "MetricsStopped", "message": "the agent is silent"}, {"reason": "Other", "message": "and more"}]
    return {"abnormal": found, "abnormalSince": "noon", **more}


def test_an_abnormal_node_says_why_and_since_when() -> None:
    lines = printed(overcommit(**abnormal())).split("\n")
    assert "abnormal since noon: the agent is silent (MetricsStopped)" in lines
    assert "abnormal: and more (Other)" in lines


def test_a_node_on_its_way_back_says_so() -> None:
    text = printed(overcommit(CPU, **abnormal(soundSince="one")))
    assert "reports are sound since one" in text


def test_a_manager_that_cannot_be_queried_is_said() -> None:
    assert "no manager found" in printed({"error": "no manager found: start one"})


def test_the_policy_is_named() -> None:
    text = printed(overcommit(CPU | {"policy": "usage"}, MEMORY | {"policy": "request"}))
    assert row(text, "policy") == ["policy", "usage", "request"]


def test_what_terms_come_from_stands_below_once() -> None:
    text = printed(overcommit(CPU | {"inputs": {"systemUsage": 75_000, "reserved": 2_000}}, MEMORY))
    assert row(text, "(reserved)") == ["(reserved)", "2,000m", ""]
    assert "(system usage)" not in text


def test_what_is_nothing_everywhere_is_left_out() -> None:
    text = printed(overcommit(CPU | {"inputs": {"hostApplications": 0}}, MEMORY))
    assert "(host applications)" not in text


def test_each_zone_has_its_sums() -> None:
    zones = [CPU | {"zone": "node-0"}, MEMORY | {"zone": "node-0"}, CPU | {"zone": "node-1", "value": 7}]
    text = printed(overcommit(zones=zones))
    first, second = text.split("Zone node-1")
    assert row(first[first.index("Zone node-0") :], "= allocatable") == ["= allocatable", "25,000m", "3,072Mi"]
    assert row(second, "= allocatable") == ["= allocatable", "7m"]


def adapted(level: int, **more: Any) -> dict[str, Any]:
    lowered = [
        {"name": "cpuSuppressThresholdPercent", "configured": 65, "now": 55},
        {"name": "cfsQuotaBurstPercent", "configured": 100, "now": 100},
    ]
    state = {"level": level, "steps": 4, "since": "noon", "reason": "web suffers", "lowered": lowered}
    return {"adaptation": state | more}


def test_an_adapted_node_says_how_far_why_and_what_brings_it_back() -> None:
    lines = printed(overcommit(CPU, **adapted(2, backAt="one"))).split("\n")
    assert "co-location is taken back to step 2 of 4 since noon: web suffers" in lines
    assert "  cpuSuppressThresholdPercent 55 (configured: 65)" in lines
    assert "  one step is taken back at one, unless a report says anything of the kind before" in lines


def test_a_node_that_came_back_says_since_when_and_what_it_had_been() -> None:
    text = printed(overcommit(CPU, **adapted(0)))
    assert "co-location is as configured again since noon; it had been taken back for: web suffers" in text
    assert "cpuSuppressThresholdPercent" not in text
