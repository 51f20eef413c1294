from __future__ import annotations

import json

import pytest

from benchmarks import intake_cost


def test_everything_that_is_sent_is_taken_in(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nodes", "5", "--running", "20", "--events", "40", "--per-read", "3", "--rounds", "1"]
    assert intake_cost.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["microseconds"]) == {"node", "node_metric", "running", "pending", "bound"}
