"""The benchmark of watches runs and prints one line."""

from __future__ import annotations

import json

import pytest

from benchmarks import watch_fanout


def test_it_reports_what_an_event_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch_fanout.main(["--watchers", "2", "--writes", "8"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["watchers"], report["writes"]) == (2, 8)
    assert report["embedded"]["events_per_second"] > 0
