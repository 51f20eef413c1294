from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scheduler_perf.selection import DEFAULT, select
from benchmarks.scheduler_perf.test_cases import Found, TestCase, Workload
from koordinator.base.errors import ConfigurationError


def found(case: str, *workloads: str) -> list[Found]:
    test_case = TestCase(name=case, workload_template=[], workloads=[Workload(name=name) for name in workloads])
    return [Found(Path(), test_case, workload) for workload in test_case.workloads]


ALL = [*found("Basic", "5Nodes", "500Nodes"), *found("Affinity", "5Nodes")]


def names(chosen: list[Found]) -> list[tuple[str, str]]:
    return [(one.case.name, one.workload.name) for one in chosen]


def test_a_test_case_means_all_its_workloads() -> None:
    assert names(select(ALL, ["Basic"], None)) == [("Basic", "5Nodes"), ("Basic", "500Nodes")]


def test_a_workload_means_that_of_every_test_case() -> None:
    assert names(select(ALL, None, ["5Nodes"])) == [("Basic", "5Nodes"), ("Affinity", "5Nodes")]


def test_both_narrow() -> None:
    assert names(select(ALL, ["Basic"], ["5Nodes"])) == [("Basic", "5Nodes")]


def test_without_names_the_default_ones_run() -> None:
    listed = [*found("SchedulingBasic", "5Nodes", DEFAULT["SchedulingBasic"]), *ALL]
    assert names(select(listed, None, None)) == [("SchedulingBasic", DEFAULT["SchedulingBasic"])]


@pytest.mark.parametrize(("cases", "workloads"), [(["Basics"], None), (["Affinity"], ["500Nodes"])])
def test_a_name_that_nobody_has_is_refused(cases: list[str], workloads: list[str] | None) -> None:
    with pytest.raises(ConfigurationError, match="one of"):
        select(ALL, cases, workloads)
