"""The benchmark measures passes and prints JSON."""

from __future__ import annotations

import json

import pytest

from benchmarks.recommender_pass import main


def test_it_prints_what_a_pass_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--recommendations=5", "--pods=2", "--passes=1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["recommendations"], report["pods"]) == (5, 10)
    assert report["cpu_seconds"] > 0
