from __future__ import annotations

import json

import pytest

from benchmarks import manager_cost


def test_every_node_is_seen_to_and_every_report_taken_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert manager_cost.main(["--nodes", "5", "--pods-per-node", "3", "--minutes", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["first_sync"]["writes"] == {"PATCH nodemetrics": 5, "PATCH nodes/status": 5, "POST nodeslos": 5}
    assert report["report"]["microseconds"] > 0
    assert len(report["writes_per_minute"]) == 2
