"""``koord status``: what it concludes, and how it says so."""

from __future__ import annotations

import asyncio
import io
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from rich.console import Console

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Lease, LeaseSpec, Node
from koordinator.api.timestamps import format_micro_time
from koordinator.base.clock import ManualClock
from koordinator.cli.cluster_record import ClusterRecord, ProgramRecord, write_record
from koordinator.cli.data_folder import lock_data_folder
from koordinator.cli.status import age, print_status
from koordinator.cli.status_report import Counts, Health, Report, collect, document, health_of, health_of_nodes

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
URL = "http://127.0.0.1:10251"


def program(**fields: Any) -> ProgramRecord:
    given = {"condition": "running", "pid": 43, "serves": {"health": URL}, **fields}
    return ProgramRecord(name="scheduler", arguments=["x"], log="/d/logs/scheduler.log", since=NOW, **given)


def report(health: Health, phase: Literal["starting", "up", "stopping"] = "up", **fields: Any) -> Report:
    record = ClusterRecord("koord up", 42, "0.1.0", NOW, phase, "/d/kubeconfig", [program(**fields)])
    counts = Counts(3, 2, {"Pending": 1, "Running": 4})
    return Report(Path("/d"), record, 42, health={"scheduler": health}, counts=counts)


def printed(shown: Report, minutes: float = 3.0) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_status(shown, NOW + timedelta(minutes=minutes), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (Report(Path("/d")), 3),
        (Report(Path("/d"), pid=42), 1),
        (report(Health()), 0),
        (report(Health(), "starting"), 1),
        (report(Health("nobody listens")), 1),
    ],
)
def test_the_exit_status_says_whether_it_is_healthy(shown: Report, status: int) -> None:
    assert shown.exit_status == status


def test_a_healthy_cluster_fits_eighty_columns() -> None:
    text = printed(report(Health(checks={"ping": True})))
    assert "koord up is healthy (process 42, version 0.1.0, since " in text
    assert "3 nodes (2 ready), 5 pods (1 Pending, 4 Running)" in text
    assert "Well: scheduler (ping)" in text
    (row,) = (line for line in text.splitlines() if line.startswith("scheduler"))
    assert row.split() == ["scheduler", "ok", "43", "3m", "0", "health", URL]


def test_trouble_is_said_with_its_log() -> None:
    text = printed(report(Health("nobody listens", {"ping": False})))
    assert "is not healthy: scheduler" in text
    assert "scheduler: nobody listens (log: /d/logs/scheduler.log)" in text
    assert "Well" not in text


def test_a_restart_is_said_with_its_last_error() -> None:
    text = printed(report(Health(), restarts=2, last_error="status 1 (no)", last_error_at=NOW))
    assert "scheduler: was started again; the last one ended at " in text
    assert "with status 1 (no)" in text


def test_the_document_has_the_same_facts() -> None:
    found = document(report(Health("no", {"ping": False}), restarts=2, last_error="status 1"))
    assert found["status"] == "unhealthy"
    assert found["programs"][0] == {
        "name": "scheduler",
        "condition": "running",
        "log": "/d/logs/scheduler.log",
        "since": "2026-01-01T12:00:00Z",
        "pid": 43,
        "restarts": 2,
        "lastError": "status 1",
        "lastErrorAt": None,
        "serves": {"health": URL},
        "healthy": False,
        "error": "no",
        "checks": {"ping": False},
    }
    assert found["pods"] == {"total": 5, "byPhase": {"Pending": 1, "Running": 4}}


def test_nothing_runs_on_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    found = asyncio.run(collect(tmp_path / "none", ManualClock()))
    assert (found.pid, found.was_killed) == (None, False)
    assert "To start a cluster: " in printed(found)


def test_one_that_was_killed_does_not_run(tmp_path: Path) -> None:
    write_record(tmp_path, ClusterRecord("koord up", 42, "0.1.0", NOW, "up", "/d/kubeconfig"))
    found = asyncio.run(collect(tmp_path, ManualClock()))
    assert found.was_killed
    assert "What ran last was killed" in printed(found)


def test_a_program_that_has_ended_is_not_well(tmp_path: Path) -> None:
    ended = program(pid=None, condition="restarting", last_error="status 1 (no)")
    with lock_data_folder(tmp_path):
        kubeconfig = str(tmp_path / "kubeconfig")
        write_record(tmp_path, ClusterRecord("koord up", os.getpid(), "0.1.0", NOW, "up", kubeconfig, [ended]))
        found = asyncio.run(collect(tmp_path, ManualClock()))
    assert found.health["scheduler"].error == "ended with status 1 (no); it is started again"
    assert found.counts is None


@pytest.mark.parametrize(
    ("created", "renewed", "error"),
    [
        (0.0, None, ""),
        (61.0, None, "a of 1 nodes have not renewed their lease for 60 s"),
        (300.0, 59.0, ""),
        (300.0, 61.0, "a of 1 nodes have not renewed their lease for 60 s"),
    ],
)
def test_a_node_keeps_its_lease_or_has_just_registered(created: float, renewed: float | None, error: str) -> None:
    """``koord up`` is up when its nodes are registered: the first leases follow."""
    node = Node(metadata=ObjectMeta(name="a", creation_timestamp=NOW - timedelta(seconds=created)))
    leases = []
    if renewed is not None:
        spec = LeaseSpec(renew_time=format_micro_time(NOW - timedelta(seconds=renewed)))
        leases.append(Lease(metadata=ObjectMeta(name="a"), spec=spec))
    assert health_of_nodes([node], leases, NOW).error == error


def test_health_is_read_part_by_part() -> None:
    assert health_of("[+]ping ok\n[-]storage failed: reason withheld\nreadyz check failed\n") == Health(
        "storage failed: reason withheld", {"ping": True, "storage": False}
    )
    assert health_of("<html>").error == "says '<html>' of its health"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (61, "1m1s"), (3599, "59m"), (3660, "1h1m"), (90000, "1d1h"), (-5, "0s")],
)
def test_ages_are_kubectls(seconds: int, text: str) -> None:
    assert age(NOW, NOW + timedelta(seconds=seconds)) == text
