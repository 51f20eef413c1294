"""Readings and capacities that make no sense: nothing is offered that is not there, and somebody says so."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from koordinator.api.kinds import NODE_METRICS, NODES, PODS
from koordinator.api.timestamps import format_time
from tests.manager.broken_input.bench import COLOCATION, ManagerBench, node, node_metric, pod
from tests.manager.broken_input.documents import BAD
from tests.manager.broken_input.neighbours import (
    READABLE,
    corrected,
    neighbour_follows,
    problems,
    run,
    with_neighbour,
    within_bounds,
)
from tests.real_world.garbage import replaced

UNREADABLE: tuple[Any, ...] = ("abc", "NaN", "Inf", "", "1.5.5", "5 cores", "0x10", True, [], {"a": 1})


METRIC_PLACES = (
    ("nodeMetric", "nodeUsage", "resources", "cpu"),
    ("nodeMetric", "systemUsage", "resources", "cpu"),
    ("podsMetric", 0, "podUsage", "resources", "cpu"),
    ("hostApplicationMetric", 0, "usage", "resources", "cpu"),
    ("prodReclaimableMetric", "resource", "resources", "cpu"),
)


def metric(bench: ManagerBench, place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    usage = {"resources": {"cpu": "1", "memory": "1G"}}
    document = node_metric(
        BAD,
        format_time(bench.clock.now()),
        podsMetric=[{"namespace": "default", "name": BAD, "podUsage": usage, "priority": "koord-prod"}],
        hostApplicationMetric=[{"name": "a", "usage": usage, "priority": "koord-prod"}],
        prodReclaimableMetric={"resource": usage},
    )
    return replaced(document, ("status", *place), value)


@pytest.mark.parametrize("place", METRIC_PLACES, ids=lambda place: place[0] + "-" + str(place[1]))
@pytest.mark.parametrize("value", READABLE)
def test_readings_out_of_range(place: tuple[Any, ...], value: Any) -> None:
    bench = with_neighbour()

    async def story() -> None:
        await bench.clock.advance(60)
        bench.cluster.put(NODE_METRICS, metric(bench, place, value))
        await bench.until_idle()
        assert within_bounds(bench.offered(BAD))
        await neighbour_follows(bench)
        await corrected(bench)

    run(bench, story)


@pytest.mark.parametrize("value", UNREADABLE)
def test_readings_that_are_no_quantities(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The report counts as not made: the last one that could be read holds until it has expired."""
    bench = with_neighbour()

    async def story() -> None:
        await bench.clock.advance(60)
        bench.cluster.put(NODE_METRICS, metric(bench, METRIC_PLACES[1], value))
        with caplog.at_level(logging.WARNING):
            await bench.until_idle()
        assert f"NodeMetric {BAD} is not readable and skipped" in caplog.text
        (problem,) = problems(bench)
        assert problem.startswith(f"NodeMetric {BAD} cannot be read, what was known of it before counts: ")
        assert problem.endswith("at `$.status.nodeMetric.systemUsage.resources.cpu`")
        assert bench.offered(BAD) == 25_000
        await bench.clock.advance(15 * 60)
        assert bench.offered(BAD) is None
        await corrected(bench)
        assert problems(bench) == ()

    run(bench, story)


def test_interference_that_cannot_be_read_is_named_once_and_the_rest_of_the_report_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = with_neighbour()
    place = "podsMetric", 0, "extensions"

    async def story() -> None:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                await bench.clock.advance(60)
                bench.cluster.put(NODE_METRICS, metric(bench, place, {"Object": {"interference": "much"}}))
                await bench.until_idle()
        (problem,) = problems(bench)
        assert problem.startswith(f"NodeMetric: the interference of pod default/{BAD} cannot be read: Expected `array`")
        assert len([each for each in caplog.records if "interference of pod" in each.getMessage()]) == 1
        assert bench.offered(BAD) != 25_000
        await corrected(bench)
        assert problems(bench) == ()

    run(bench, story)


def condition(bench: ManagerBench) -> tuple[str, str]:
    conditions = (bench.cluster.found(NODES, BAD) or {})["status"]["conditions"]
    return next(
        ((each["status"], each["reason"]) for each in conditions if each["type"] == "ColocationAbnormal"), ("", "")
    )


@pytest.mark.parametrize(("value", "reason"), [("-5", "NegativeUsage"), ("1e30", "UsageAboveCapacity")])
def test_readings_that_stay_impossible_mark_the_node(value: str, reason: str) -> None:
    bench = with_neighbour()

    async def story() -> None:
        for cpu in range(4):
            await bench.clock.advance(120)
            document = metric(bench, ("nodeMetric", "nodeUsage", "resources", "cpu"), value)
            bench.cluster.put(NODE_METRICS, replaced(document, ("status", *METRIC_PLACES[1]), str(cpu)))
            await bench.until_idle()
        assert condition(bench) == ("True", reason)
        assert bench.offered(BAD) is None
        for cpu in range(4):
            await bench.clock.advance(120)
            bench.report(BAD, str(cpu))
            await bench.until_idle()
        assert condition(bench)[0] == "False"
        bench.report(BAD, "10")
        await bench.until_offered(BAD, 55_000)

    run(bench, story)


@pytest.mark.parametrize("part", ["allocatable", "capacity"])
@pytest.mark.parametrize("value", READABLE)
def test_what_a_node_says_that_it_has(part: str, value: Any) -> None:
    bench = with_neighbour()

    async def story() -> None:
        bench.cluster.put(NODES, replaced(node(BAD), ("status", part, "cpu"), value))
        await bench.until_idle()
        offered = bench.offered(BAD)
        assert offered is None or offered >= 0
        await neighbour_follows(bench)
        bench.cluster.put(NODES, node(BAD))
        await corrected(bench)

    run(bench, story)


@pytest.mark.parametrize("value", UNREADABLE)
def test_a_node_that_cannot_be_read_is_left_as_it_is(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    bench = with_neighbour()

    async def story() -> None:
        before = bench.cluster.writes["patch", "nodes"]
        bench.cluster.put(NODES, replaced(node(BAD), ("status", "allocatable", "cpu"), value))
        with caplog.at_level(logging.WARNING):
            await bench.until_idle()
        assert f"Node {BAD} is not readable and skipped" in caplog.text
        assert problems(bench)[0].startswith(f"Node {BAD} cannot be read")
        assert bench.cluster.writes["patch", "nodes"] == before
        bench.cluster.put(NODES, node(BAD))
        await corrected(bench)

    run(bench, story)


@pytest.mark.parametrize("value", READABLE)
def test_what_a_pod_requests(value: Any) -> None:
    """What is requested is not lent, and no more can be taken back than there is."""
    bench = with_neighbour()
    document = pod("p", node_name=BAD, labels={"koordinator.sh/qosClass": "LS"})
    place = ("spec", "containers", 0, "resources", "requests", "cpu")

    async def story() -> None:
        bench.cluster.put(PODS, replaced(document, place, value))
        await bench.clock.advance(60)
        bench.report(BAD, "41")
        await bench.until_idle()
        assert within_bounds(bench.offered(BAD))
        await neighbour_follows(bench)
        bench.cluster.remove(PODS, "p", "default")
        await corrected(bench)

    run(bench, story)


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("9999-12-31T23:59:59Z", "ReportFromTheFuture"),
        ("9999-12-31T23:59:59-12:00", "ReportFromTheFuture"),
        ("0001-01-01T00:00:00Z", "ReportFromThePast"),
        ("0001-01-01T00:00:00+14:00", "ReportFromThePast"),
    ],
)
def test_reports_of_a_time_that_cannot_be(time: str, reason: str) -> None:
    bench = with_neighbour()

    async def story() -> None:
        await bench.clock.advance(60)
        bench.cluster.put(NODE_METRICS, node_metric(BAD, time))
        await bench.until_idle()
        assert bench.offered(BAD) is None
        await bench.clock.advance(300)
        assert condition(bench) == ("True", reason)
        await neighbour_follows(bench)
        await corrected(bench)

    run(bench, story)


@pytest.mark.parametrize("field", ["degradeTimeMinutes", "updateTimeThresholdSeconds"])
@pytest.mark.parametrize("span", [2**31 - 1, 2**31, 2**53, 2**63 - 1])
def test_spans_longer_than_the_calendar_mean_never(field: str, span: int) -> None:
    bench = with_neighbour()
    bench.configure({"colocation-config": {**COLOCATION, field: span}})

    async def story() -> None:
        assert bench.offered(BAD) == 25_000
        await neighbour_follows(bench)

    run(bench, story)
