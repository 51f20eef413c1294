"""What is reported of remedies against interference: to whom, when, and with which figures."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from koordinator.api.modification import REMEDIED
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.enforce.strategies.interference_cases import Case, Hold, Remedy, Result, Trial
from koordinator.koordlet.enforce.strategies.interference_remedies import RemedyState
from koordinator.koordlet.observe.interference.detection import Indicator
from koordinator.koordlet.report.remedies import RemedyReport
from tests.recorded_events import RecordedEvents

CAPPED = Trial(Remedy.CAP, Hold("2.00 of 4.00 cores", quota=200_000), 0.0, 42.1)
PINNED = Trial(Remedy.PIN, Hold("CPUs 4-7 of 0-7"), 60.0, 42.1)


def state(*trials: Trial) -> RemedyState:
    case = Case("uid-web", "uid-job", Indicator.CPU, "shop/web", "team/job", 1.5, 5.0, 0.0, 0.0, trials)
    return RemedyState({case.key: case})


class Reported:
    def __init__(self) -> None:
        self.clock, self.recorded = ManualClock(), RecordedEvents()
        self.metrics = AgentMetrics(Metrics(), "node-1")
        self.report = RemedyReport("node-1", self.recorded, self.metrics, self.clock)


@pytest.fixture
def reported() -> Reported:
    return Reported()


def test_the_suspect_gets_an_event_for_what_begins_and_for_what_it_has_brought(reported: Reported) -> None:
    for _ in range(2):
        reported.report.observe(state(CAPPED))
    undone = replace(CAPPED, after=38.0, result=Result.TOO_LITTLE)
    reported.report.observe(state(undone, PINNED))
    reported.report.observe(state(undone, replace(PINNED, after=3.0, result=Result.HELPS)))
    reported.report.observe(state(undone, replace(PINNED, after=3.0, result=Result.RELEASED)))
    since = "since it disturbs shop/web: cpu-pressure"
    cap, pin = f"cap (2.00 of 4.00 cores), {since}", f"pin (CPUs 4-7 of 0-7), {since}"
    assert reported.recorded.notes == [
        ("job", "InterferenceRemedyTried", f"{cap} is 42.1, normally 1.5"),
        ("job", "InterferenceRemedyUndone", f"{cap} was 42.1 before, 38.0 with it; that is too little, undone"),
        ("job", "InterferenceRemedyTried", f"{pin} is 42.1, normally 1.5"),
        ("job", "InterferenceRemedyHelps", f"{pin} was 42.1 before, 3.0 with it"),
        ("job", "InterferenceRemedyReleased", f"{pin} was 42.1 before, 3.0 with it; taken back"),
    ]


def test_the_audit_gets_the_figures(reported: Reported) -> None:
    reported.report.observe(state(replace(CAPPED, after=38.0, result=Result.TOO_LITTLE)))
    (record,) = reported.recorded.records
    assert (record.action, record.node, record.cause.code) == (REMEDIED, "node-1", "cap")
    assert record.numbers == {"before": 42.1, "after": 38.0}


def test_what_is_not_possible_is_no_event(reported: Reported) -> None:
    reported.report.observe(state(replace(CAPPED, result=Result.NOT_POSSIBLE)))
    assert reported.recorded.events == []
    ((said,),) = [each["interferenceRemedies"] for each in reported.report.extensions().values()]
    assert said["result"] == "notPossible"


def test_a_remedy_that_is_tried_again_is_reported_again(reported: Reported) -> None:
    for began in (0.0, 4_000.0):
        reported.report.observe(state(replace(CAPPED, began=began)))
    assert len(reported.recorded.events) == 2


def test_the_node_metric_has_it_with_the_victim(reported: Reported) -> None:
    asyncio.run(reported.clock.advance(90.0))
    reported.report.observe(state(replace(CAPPED, after=38.0, result=Result.TOO_LITTLE), PINNED))
    began = reported.clock.now()
    assert reported.report.extensions().keys() == {"uid-web"}
    first, second = reported.report.extensions()["uid-web"]["interferenceRemedies"]
    assert (first["remedy"], first["before"], first["after"], first["result"]) == ("cap", 42.1, 38.0, "tooLittle")
    assert "after" not in second
    assert (second["suspect"], second["what"]) == ("team/job", "CPUs 4-7 of 0-7")
    assert first["since"] < second["since"] < began.isoformat()


def test_the_metric_counts_them_by_result(reported: Reported) -> None:
    reported.report.observe(state(CAPPED))
    reported.report.observe(state(replace(CAPPED, result=Result.HELPS)))
    body, _ = reported.metrics.internal.exposition()
    lines = [line for line in body.decode().splitlines() if line.startswith("koordlet_interference_remedies")]
    assert sorted(line.partition("remedy=")[2] for line in lines) == [
        '"cap",result="helps"} 1.0', '"cap",result="trying"} 1.0',
    ]  # fmt: skip
