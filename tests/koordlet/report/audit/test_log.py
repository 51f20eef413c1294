"""The audit log: what is written, in which files, and what a disk costs it that takes nothing."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from koordinator.base.clock import ManualClock
from koordinator.koordlet.options import AuditOptions
from koordinator.koordlet.report.audit.log import AuditEvent, AuditLog

MIB = 1 << 20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, 12, tzinfo=UTC))


def make(folder: Path, clock: ManualClock, *, megabytes: int = 16, verbosity: int = 3) -> AuditLog:
    return AuditLog(folder, AuditOptions(verbosity, megabytes * MIB), clock, UTC)


def lines(folder: Path) -> list[str]:
    return (folder / "audit.log").read_text().splitlines()


def big(number: int) -> AuditEvent:
    """An event of about 16 KiB."""
    return AuditEvent(type="node", reason=f"r{number}", message="m" * 16_000)


def test_the_document_of_an_event(tmp_path: Path, clock: ManualClock) -> None:
    zone = timezone(timedelta(hours=8))
    clock.set_wall(datetime(2026, 1, 1, 12, 0, 0, 120_000, tzinfo=UTC))
    log = AuditLog(tmp_path / "a", AuditOptions(), clock, zone)
    log.record(AuditEvent(type="pod", namespace="shop", name="web", reason="evicted", message="node is hot"), level=0)
    assert lines(tmp_path / "a") == [
        '{"createdAt":"2026-01-01T20:00:00.12+08:00","type":"pod","namespace":"shop","name":"web",'
        '"reason":"evicted","message":"node is hot"}'
    ]


@pytest.mark.parametrize(("verbosity", "kept"), [(3, [0, 3]), (1, [0]), (0, [0, 3, 5]), (-1, [0, 3, 5])])
def test_levels_above_the_verbosity_are_left_out(
    tmp_path: Path, clock: ManualClock, verbosity: int, kept: list[int]
) -> None:
    log = make(tmp_path, clock, verbosity=verbosity)
    for level in (0, 3, 5):
        log.record(AuditEvent(name=str(level)), level)
    log.close()
    assert [int(json.loads(line)["name"]) for line in lines(tmp_path)] == kept


def test_events_wait_five_seconds_for_company(tmp_path: Path, clock: ManualClock) -> None:
    log = make(tmp_path, clock)
    log.record(AuditEvent(name="first"), 0)
    log.record(AuditEvent(name="second"), 0)
    assert len(lines(tmp_path)) == 1
    log.flush()
    assert len(lines(tmp_path)) == 2


def test_all_files_together_stay_below_the_bound(tmp_path: Path, clock: ManualClock) -> None:
    log = make(tmp_path, clock, megabytes=6)
    for number in range(1000):
        clock.set_wall(clock.now() + timedelta(seconds=1))
        log.record(big(number), 0)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) <= 6 * MIB + 20_000
    assert files[0].name.startswith("audit-2026-01-01-12-")
    assert json.loads(lines(tmp_path)[-1])["reason"] == "r999"


def test_a_restart_goes_on_in_the_file_that_is_there(tmp_path: Path, clock: ManualClock) -> None:
    for number in range(3):
        log = make(tmp_path, clock)
        for _ in range(60):
            log.record(big(number), 0)
        log.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_files_of_one_second_have_names_of_their_own(tmp_path: Path, clock: ManualClock) -> None:
    log = make(tmp_path, clock, megabytes=64)
    for number in range(400):
        log.record(big(number), 0)
    log.close()
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [*(f"audit-2026-01-01-12-00-00-{number}.log" for number in range(3)), "audit.log"]


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Files of this process cannot grow beyond half a MiB, which is how the kernel refuses on a full disk, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB // 2, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_costs_the_oldest_events_and_is_said_once(
    tmp_path: Path, clock: ManualClock, full_disk: None, caplog: pytest.LogCaptureFixture
) -> None:
    log = make(tmp_path, clock)
    for number in range(200):
        clock.set_wall(clock.now() + timedelta(seconds=1))
        log.record(big(number), 0)
        log.flush()
    assert caplog.text.count("events wait in memory") == 1
    assert all(json.loads(line) for line in lines(tmp_path))
    assert log.lost_events > 0
    # The disk has free capacity again.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    log.close()
    assert json.loads(lines(tmp_path)[-1])["reason"] == "r199"
    assert len(lines(tmp_path)) + log.lost_events == 200


def test_a_folder_that_cannot_be_made(tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    log = make(tmp_path / "file/below", clock)
    for number in range(200):
        log.record(big(number), 0)
    log.close()
    assert os.strerror(errno.ENOTDIR) in caplog.text
    assert log.lost_events > 100


def test_somebody_who_cleans_up_is_borne(tmp_path: Path, clock: ManualClock) -> None:
    log = make(tmp_path, clock)
    for number in range(200):
        log.record(big(number), 0)
        if number == 60:
            log.flush()
            (tmp_path / "audit.log").unlink()
    log.close()
    assert json.loads(lines(tmp_path)[-1])["reason"] == "r199"


def test_the_end_of_trouble_is_said(
    tmp_path: Path, clock: ManualClock, full_disk: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log = make(tmp_path, clock)
    for number in range(100):
        log.record(big(number), 0)
    log.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    log.flush()
    assert "written again" in caplog.text
