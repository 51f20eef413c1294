"""What becomes of a Reservation by its owners, its node and the time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation, ReservationStatus
from koordinator.scheduler.plugins.reservation.controller import (
    Facts,
    is_to_be_deleted,
    status_change,
)
from koordinator.scheduler.plugins.reservation.reserve_pod import available_status

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def reservation(status: Mapping[str, Any] | None = None, **spec: Any) -> Reservation:
    container = {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
    document = {
        "metadata": {"name": "r", "uid": "u", "creationTimestamp": "2026-03-01T11:00:00Z"},
        "spec": {"template": {"spec": {"containers": [container]}}, "ttl": "24h", **spec},
        "status": dict(status or {}),
    }
    return convert(document, Reservation)


def placed(**spec: Any) -> Reservation:
    found = reservation(**spec)
    return msgspec.structs.replace(found, status=convert(available_status(found, "a", NOW), ReservationStatus))


def owner(name: str = "o", cpu: str = "1") -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "example.com/other": "1"}}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return convert({"metadata": metadata, "spec": {"nodeName": "a", "containers": [container]}}, Pod)


def conditions(change: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    assert change is not None
    return [(each["type"], each["status"], each["reason"]) for each in change["conditions"]]


def test_when_it_is_placed_it_holds_what_its_template_requests() -> None:
    status = available_status(reservation(), "a", NOW)
    assert (status["phase"], status["nodeName"]) == ("Available", "a")
    assert status["allocatable"] == {"cpu": "2", "memory": "4Gi"}
    assert conditions(status) == [("Scheduled", "True", "Scheduled"), ("Ready", "True", "Available")]


def test_its_first_owner_uses_it_up() -> None:
    change = status_change(placed(), Facts((owner(),)), NOW)
    assert change is not None
    assert (change["phase"], [each["name"] for each in change["currentOwners"]]) == ("Succeeded", ["o"])
    assert change["allocated"] == {"cpu": "1"}
    assert conditions(change)[1] == ("Ready", "False", "Succeeded")


def test_one_for_several_owners_stays_available_and_says_what_they_use() -> None:
    shared = placed(allocateOnce=False)
    change = status_change(shared, Facts((owner("b"), owner("a", "500m"))), NOW)
    assert change is not None
    assert "phase" not in change
    assert [each["name"] for each in change["currentOwners"]] == ["a", "b"]
    assert change["allocated"] == {"cpu": "1500m"}


def test_an_owner_that_leaves_is_written_too() -> None:
    shared = placed(allocateOnce=False)
    change = status_change(shared, Facts((owner(),)), NOW)
    used = convert({**available_status(shared, "a", NOW), **(change or {})}, ReservationStatus)
    assert status_change(msgspec.structs.replace(shared, status=used), Facts(), NOW) == {
        "currentOwners": [],
        "allocated": {"cpu": None},
    }


def test_what_is_as_it_should_be_is_not_written() -> None:
    assert status_change(placed(), Facts(), NOW) is None


@pytest.mark.parametrize(
    ("spec", "hours", "expired"),
    [
        ({}, 22, False),
        ({}, 24, True),
        ({"ttl": "0s"}, 10_000, False),
        ({"expires": "2026-03-01T13:00:00Z"}, 0.5, False),
        ({"expires": "2026-03-01T13:00:00Z"}, 1.5, True),
        ({"expires": "2026-03-09T13:00:00Z"}, 48, False),
        ({"expires": "2026-03-01T13:00:00Z", "ttl": "0s"}, 10_000, False),
        ({"expires": "2026-03-01T13:00:00Z", "ttl": "48h"}, 1.5, True),
        ({"expires": "2026-03-09T13:00:00Z", "ttl": "2h"}, 0.5, False),
        ({"expires": "2026-03-09T13:00:00Z", "ttl": "2h"}, 1.5, True),
        ({"expires": "2026-03-01T13:00:00Z", "ttl": None}, 0.5, False),
        ({"expires": "2026-03-01T13:00:00Z", "ttl": None}, 1.5, True),
        ({"ttl": None}, 10_000, False),
    ],
)
def test_when_it_expires(spec: dict[str, Any], hours: float, expired: bool) -> None:
    change = status_change(placed(**spec), Facts(), NOW + timedelta(hours=hours))
    assert (change is not None) is expired
    if change is not None:
        assert (change["phase"], conditions(change)[1]) == ("Failed", ("Ready", "False", "Expired"))


def test_one_that_never_found_a_node_expires_too() -> None:
    change = status_change(reservation(ttl="1m"), Facts(has_node=False), NOW)
    assert change is not None
    assert change["phase"] == "Failed"


def test_it_fails_with_its_node() -> None:
    change = status_change(placed(), Facts(has_node=False), NOW)
    assert change is not None
    assert change["phase"] == "Failed"


def test_why_it_finds_no_node_is_written() -> None:
    change = status_change(reservation(), Facts(has_node=False, failure="0/1 nodes are available."), NOW)
    assert change is not None
    assert change["conditions"][0]["message"] == "0/1 nodes are available."
    assert conditions(change) == [("Scheduled", "False", "Unschedulable")]


@pytest.mark.parametrize("hours", [1, 25])
def test_it_is_deleted_a_day_after_its_end(hours: int) -> None:
    ended = placed()
    status = convert(
        {**available_status(ended, "a", NOW), **(status_change(ended, Facts((owner(),)), NOW) or {})}, ReservationStatus
    )
    over = msgspec.structs.replace(ended, status=status)
    later = NOW + timedelta(hours=hours)
    assert is_to_be_deleted(over, True, timedelta(days=1), later) is (hours > 24)
    assert is_to_be_deleted(over, False, timedelta(days=1), later)
    assert not is_to_be_deleted(placed(), True, timedelta(days=1), later)
