from __future__ import annotations

import json

import pytest

from benchmarks import schema_cost


def test_the_report_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema_cost.main(["--pods", "2", "--repetitions", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"write", "read_new", "read_old", "decoding"} <= set(report)
