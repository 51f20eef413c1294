"""The soak itself, for a moment: every program under test is killed once, and each cycle comes to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import soak, soak_programs


@pytest.mark.slow
def test_each_program_is_killed_once_and_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--phase=kills", "--kills=1", "--hours=0.01", "--nodes=4", "--interval=5", f"--output={tmp_path}")
    assert soak.main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert {name for name, found in result["programs"].items() if found.get("kills") == 1} == set(soak_programs.KILLED)
    assert result["pods_bound"] > 0
    assert all(found["completed"] == found["started"] > 0 for found in result["cycles"].values())
    assert (result["lost"], result["given_out_twice"], result["left_over"]) == ([], {}, {})
    assert (tmp_path / "readings.json").is_file()
