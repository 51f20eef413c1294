"""The benchmark of koord-manager beside the original, at a size that says nothing but that it measures."""

from __future__ import annotations

import json

import pytest

from benchmarks import manager_scale
from tests.real.programs import RealPrograms


@pytest.mark.slow
def test_nodes_that_are_stored_lend_and_report(real_programs: RealPrograms, capsys: pytest.CaptureFixture[str]) -> None:
    assert manager_scale.main(["--nodes", "5", "--pods-per-node", "3", "--minutes", "0.2"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["ours"]["reports"] == figures["original"]["reports"] == 1
    assert all(ratio > 0 for ratio in figures["ratios"].values())
