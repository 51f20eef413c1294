"""Kubernetes' own workload files, read and run: everything that must be bound is, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.contenders import Contender
from benchmarks.scheduler_perf.locations import HOW_TO_GET, scheduler_perf_folder
from benchmarks.scheduler_perf.run import Conditions, Outcome, run_workload
from benchmarks.scheduler_perf.selection import DEFAULT, select
from benchmarks.scheduler_perf.test_cases import Found, find_workloads
from tests.real.programs import RealPrograms

LIMIT = 60.0


@pytest.fixture(scope="session")
def workloads() -> list[Found]:
    folder = scheduler_perf_folder()
    if folder is None:
        pytest.skip(HOW_TO_GET)
    return find_workloads(folder)


def run(found: list[Found], case: str, workload: str, programs: RealPrograms, folder: Path) -> Outcome:
    (chosen,) = select(found, [case], [workload])
    return asyncio.run(run_workload(chosen, Contender.OURS, Conditions(limit=LIMIT), programs, folder))


def test_the_default_selection_exists(workloads: list[Found]) -> None:
    chosen = select(workloads, None, None)
    assert {one.case.name: one.workload.name for one in chosen} == DEFAULT


def test_scheduling_basic(workloads: list[Found], real_programs: RealPrograms, tmp_path: Path) -> None:
    outcome = run(workloads, "SchedulingBasic", "5Nodes", real_programs, tmp_path)
    assert (outcome.faults, outcome.bound, outcome.not_bound) == ([], 15, 0)
    assert [one.pods for one in outcome.measurements] == [10]


def test_unschedulable(workloads: list[Found], real_programs: RealPrograms, tmp_path: Path) -> None:
    """Pods that fit nowhere keep coming, with a higher priority; the others are bound all the same."""
    outcome = run(workloads, "Unschedulable", "5Nodes/1Init/10Pods", real_programs, tmp_path)
    assert (outcome.faults, outcome.bound) == ([], 11)
    assert outcome.not_bound >= 1
