"""The benchmark of adapted nodes compares both kinds of policies, and draws them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.adaptive_slo import ADAPTED, Outcome, compared, main


def test_it_prints_the_figures_and_draws_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "week.svg"
    assert main(["--nodes=1", "--days=0.05", "--processes=1", f"--svg={picture}"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["threshold"] for each in report["adapted"]] == list(ADAPTED)
    assert all(each["batch"] > 0 for each in report["fixed"])
    assert len(ElementTree.parse(picture).getroot().findall("{*}g")) == 2


def test_an_adapted_policy_is_compared_at_equal_work_and_at_equal_violations() -> None:
    fixed = [Outcome(50, False, violations=0.02, batch=100), Outcome(60, False, violations=0.10, batch=200)]
    (found,) = compared([*fixed, Outcome(70, True, violations=0.04, batch=150)])
    assert found["fixed_violations_at_equal_batch"] == 0.06
    assert found["fixed_batch_at_equal_violations"] == 125
