from __future__ import annotations

import json

import pytest

from benchmarks.cases import CASES
from benchmarks.contenders import Contender
from benchmarks.figures import Figures
from benchmarks.placements import Faults
from benchmarks.scheduler_report import CaseResult, markdown

RIGHT = Faults(0, 0, 0, 0, 0)
LOST_EVENT = Faults(0, 0, 0, 0, 1)


def result(ours: float = 700.0, faults: Faults = RIGHT, *, original: bool = True) -> CaseResult:
    runs = {
        Contender.OURS: [Figures(ours, 0.5, 1.5, 1.0, 80, 100, 1000, 5.0, 1, 0.0)],
        Contender.BIND_ONLY_LATER: [Figures(1000, 0.4, 1.2, 0.8, 60, 100, 1000, 5.0, 1, 0.0)],
        Contender.BIND_ONLY: [Figures(800, 0.4, 1.2, 0.8, 60, 100, 1000, 5.0, 1, 0.0)],
    }
    if original:
        runs[Contender.ORIGINAL] = [Figures(100, 9.0, 9.5, 0.5, 200, 100, 1000, 5.0, 1, 0.0)]
    return CaseResult(CASES["5000-equal"], runs, {contender: [faults] for contender in runs})


def test_everything_is_met() -> None:
    document = result().document()
    assert document["all_met"] is True
    assert set(document["met"]) == {"pods_per_second", "cpu_per_pod", "peak_memory", "of_binding"}


def test_a_requirement_that_is_not_met_shows() -> None:
    document = result(ours=300.0).document()
    assert document["all_met"] is False
    assert document["met"]["pods_per_second"] is False


def test_fast_and_wrong_is_not_met() -> None:
    assert result(faults=LOST_EVENT).document()["all_met"] is False


def test_the_document_is_json() -> None:
    assert json.loads(json.dumps(result().document()))["case"] == "5000-equal"


@pytest.mark.parametrize("original", [True, False])
def test_every_line_of_the_table_has_as_many_cells(original: bool) -> None:
    lines = markdown([result(original=original), result()]).splitlines()
    assert len(lines) == 2 + 2 * 7
    assert {line.count("|") for line in lines} == {11}


def test_the_table_says_what_is_not_met() -> None:
    assert "| 3 | ≥ 6 | **no** |" in markdown([result(ours=300.0)])


def test_an_earlier_commit_is_compared_by_itself() -> None:
    found = result()
    assert found.document()["of_earlier"] is None
    runs = {**found.runs, Contender.EARLIER: [Figures(875, 0.4, 1.2, 0.8, 60, 100, 1000, 5.0, 1, 0.0)]}
    document = CaseResult(found.case, runs, found.faults).document()
    assert document["of_earlier"]["pods_per_second"] == 0.8
    assert document["of_earlier"]["cpu_per_pod"] == 1.25
    assert document["ratios"] == found.document()["ratios"]
