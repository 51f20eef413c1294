from __future__ import annotations

import json

import pytest

from benchmarks import decision_cost, pod_mixes
from koordinator.scheduler.engine.engine import Engine


def test_both_engines_place_pods_on_the_same_books() -> None:
    nodes = []
    for engine in (Engine, decision_cost.WithoutRecords):
        fixture = decision_cost.make_fixture(20, engine)
        nodes.append([fixture.place(pod).node_name for pod in fixture.pods(pod_mixes.different(10))])
    assert nodes[0] == nodes[1]


def test_the_first_turn_does_not_count() -> None:
    assert decision_cost.median_cost([900.0, 3.0, 1.0, 2.0]) == 2.0


def test_the_report_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nodes", "10", "20", "--equal", "101", "--different", "101", "--records-at", "10", "--whole", "1e9"]
    assert decision_cost.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["equal"]["microseconds"]) == {"10", "20"}
    assert report["records"]["under_5_percent"] is True
