"""The benchmark of hot spots plays the same day with each combination of programs."""

from __future__ import annotations

import json

import pytest

from benchmarks.hot_spots import main


def test_it_prints_the_figures_of_each_combination(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes=2", "--days=1", "--hours=0.5"]) == 0
    report = json.loads(capsys.readouterr().out)
    for name in ("neither", "scheduler", "descheduler", "both"):
        assert report[name].keys() == {"hot", "full", "evictions", "pending"}
