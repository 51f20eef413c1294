"""What a node's report that is not usable comes to, and where its author reads of it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_METRICS
from koordinator.api.nodemetric import NodeMetric
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from tests.real_world.broken_documents import metric_document
from tests.real_world.broken_metrics import BROKEN_METRICS
from tests.scheduler.broken_input.test_broken_objects import running_beside, two_nodes
from tests.scheduler.explain.scene import Scene, make_node, make_pod

_CPU: Final = "status.nodeMetric.nodeUsage.resources.cpu"


def facts_of(document: dict[str, Any]) -> dict[str, Any]:
    scene = Scene(make_node("broken"))
    scene.report("broken", cpu="1", memory="1Gi")
    scene.state.set_node_object(NODE_METRICS.name, "broken", convert(document, NodeMetric))
    facts: dict[str, Any] = scene.node("broken")["plugins"]["LoadAwareScheduling"]
    return facts


@pytest.mark.parametrize("cpu", ["-3", "-1e99999"])
def test_a_usage_below_zero_counts_as_none_and_is_named(cpu: str) -> None:
    facts = facts_of(metric_document({"cpu": cpu, "memory": "1Gi"}))
    assert facts["reported"] is False
    assert "usage" not in facts
    (fault,) = facts["faults"]
    assert fault.startswith(f"{_CPU}: -")
    assert fault.endswith(" is not usable: allowed are 0 to 72057594037927936m")


def test_a_usage_beyond_all_bounds_fills_the_node_and_is_named() -> None:
    facts = facts_of(metric_document({"cpu": "1e99999", "memory": "1Gi"}))
    assert facts["reported"] is True
    assert facts["usage"][0]["measured"] == "72057594037927.938 cores"
    assert [fault.partition(":")[0] for fault in facts["faults"]] == [_CPU]


def test_a_report_of_the_future_is_as_old_as_the_time_when_it_was_read() -> None:
    facts = facts_of(metric_document({"cpu": "1", "memory": "1Gi"}, updateTime="9999-12-31T23:59:59Z"))
    assert facts["reportedAt"] == "2026-01-01T00:00:00.000000Z"
    assert "is yet to come" in facts["faults"][0]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("metric-percentile-below-zero", "status.nodeMetric.aggregatedNodeUsages[0].usage.p95.resources.cpu"),
        ("metric-pod-below-zero", "status.podsMetric[0].podUsage.resources.cpu"),
    ],
)
def test_parts_of_a_report_are_named_by_their_paths(name: str, field: str) -> None:
    (broken,) = [each for each in BROKEN_METRICS if each.name == name]
    facts = facts_of(broken.copy())
    assert facts["reported"] is True
    assert facts["faults"][0].startswith(f"{field}: -3 is not usable")


def test_a_node_whose_report_is_not_usable_gets_the_lowest_score() -> None:
    scene = Scene(make_node("broken"), make_node("good"))
    scene.report("good", cpu="3", memory="1Gi")
    broken = convert(metric_document({"cpu": "-3", "memory": "1Gi"}), NodeMetric)
    scene.state.set_node_object(NODE_METRICS.name, "broken", broken)
    plugin = scene.engine.profile.plugins["LoadAwareScheduling"]
    assert isinstance(plugin, LoadAwareScheduling)
    pod = scene.info(make_pod("p"))
    row = scene.view.columns.row_of
    scores = {name: plugin.score_one(pod, plugin.pre_score(pod), row[name]) for name in ("broken", "good")}
    assert scores["broken"] == 0 < scores["good"]
    assert plugin.filter_one(pod, plugin.pre_filter(pod).state, row["broken"]) == 0


def test_the_author_is_told_once_by_an_event() -> None:
    fixture = running_beside(two_nodes())

    async def story() -> None:
        async with fixture.running():
            for usage in ("-3", "-4"):
                fixture.api.put(NODE_METRICS, metric_document({"cpu": usage, "memory": "1Gi"}))
                await fixture.until_idle(2)

    asyncio.run(story())
    notes = [(name, reason) for name, reason, _ in fixture.events.notes]
    assert notes == [("broken", "UnusableNodeMetric")]
