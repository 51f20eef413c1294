"""The benchmark of requests runs on the embedded server and prints one line for each case."""

from __future__ import annotations

import json

import pytest

from benchmarks import api_requests
from benchmarks.api_servers import EMBEDDED, RIVAL


def test_it_reports_what_each_case_costs(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rounds=1", "--requests=2", "--watchers=2", "--listed=3", f"--only={EMBEDDED}"]
    assert api_requests.main(small) == 0
    ready, *lines = map(json.loads, capsys.readouterr().out.splitlines())
    assert ready["seconds"][EMBEDDED] > 0
    assert [line["case"] for line in lines] == [*api_requests.CASES, api_requests.WATCH]
    assert all(line[EMBEDDED]["per_second"] > 0 for line in lines)


def test_a_ratio_above_one_is_in_favour_of_the_embedded_server() -> None:
    ours, other = [api_requests.Figures(20.0, 100.0)], [api_requests.Figures(10.0, 300.0)]
    line = api_requests.compared("pod get", {EMBEDDED: ours, RIVAL: other})
    assert (line["ratio_per_second"], line["ratio_cpu"]) == (2.0, 3.0)
