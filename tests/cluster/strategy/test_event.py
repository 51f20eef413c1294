from __future__ import annotations

from koordinator.cluster.strategy.event import EVENT_TABLE, to_core, to_events_group
from tests.cluster.corpus import NOW

CORE = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e"},
    "involvedObject": {"kind": "Pod", "name": "p"},
    "reason": "FailedScheduling",
    "message": "0/3 nodes are available",
    "source": {"component": "koord-scheduler"},
    "firstTimestamp": "2025-12-31T23:50:00Z",
    "lastTimestamp": "2025-12-31T23:59:00Z",
    "count": 3,
    "type": "Warning",
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
    "future": 1,
}


def test_round_trip_between_versions() -> None:
    assert to_core(to_events_group(CORE)) == CORE


def test_names_in_the_newer_version() -> None:
    event = to_events_group(CORE)
    assert (event["regarding"], event["note"], event["deprecatedCount"]) == (CORE["involvedObject"], CORE["message"], 3)


def test_row() -> None:
    row = EVENT_TABLE.row(CORE, NOW)
    assert row[:4] == ["60s", "Warning", "FailedScheduling", "pod/p"]
    assert row[6:9] == ["0/3 nodes are available", "10m", 3]


def test_row_is_the_same_in_both_versions() -> None:
    assert EVENT_TABLE.row(to_events_group(CORE), NOW) == EVENT_TABLE.row(CORE, NOW)
