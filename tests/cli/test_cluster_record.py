"""The record of a running cluster, and what is cleaned up after one that was killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from koordinator.cli.cluster_record import (
    ClusterRecord,
    ProgramRecord,
    end_left_programs,
    read_record,
    remove_record,
    write_record,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ARGUMENTS = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]


def record(*programs: ProgramRecord) -> ClusterRecord:
    return ClusterRecord("koord up", 42, "0.1.0", NOW, "up", "/data/kubeconfig", list(programs))


def program(pid: int, arguments: list[str] = ARGUMENTS) -> ProgramRecord:
    return ProgramRecord("scheduler", "running", arguments, "/data/logs/scheduler.log", NOW, pid)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(ARGUMENTS, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Only when it runs: the kernel shows no command line for a moment while it loads a program.
        process.stdout.readline()
        yield process
        process.kill()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = record(program(7))
    write_record(tmp_path, written)
    assert read_record(tmp_path) == written
    remove_record(tmp_path)
    assert read_record(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", '{"pid": "x"}', "[]"])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "up.json").write_text(content)
    assert read_record(tmp_path) is None


def test_a_program_that_was_left_is_ended_even_when_it_is_halted(child: subprocess.Popen[bytes]) -> None:
    psutil.Process(child.pid).suspend()
    reports: list[str] = []
    end_left_programs(record(program(child.pid)), reports.append, patience=0.0)
    assert not psutil.pid_exists(child.pid)
    assert reports == [f"ending scheduler (process {child.pid}), which an earlier koord up has left"]


def test_a_process_that_has_the_number_by_chance_is_left_alone(child: subprocess.Popen[bytes]) -> None:
    reports: list[str] = []
    end_left_programs(record(program(child.pid, ["another", "program"])), reports.append, patience=0.0)
    assert child.poll() is None
    assert reports == []
