"""The benchmark of preemption decides what it says it does, on a cluster that is quick to make."""

from __future__ import annotations

import json

import pytest

from benchmarks import preemption_cost


def test_the_report_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert preemption_cost.main(["--nodes", "6", "--pods", "4", "--lag", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["microseconds"]["6"].keys() == {"finding_victims", "taking_capacity"}


def test_more_pods_than_nodes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        preemption_cost.main(["--nodes", "6", "--pods", "7"])
    assert "--pods" in capsys.readouterr().err
