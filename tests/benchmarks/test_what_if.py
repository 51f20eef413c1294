"""The benchmark of what-ifs asks what it says it does, on a cluster that is quick to make."""

from __future__ import annotations

import json

import pytest

from benchmarks import what_if


def test_the_report_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert what_if.main(["--nodes", "4", "--pods", "16", "--new", "5"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["seconds"].keys() == {"drain", "apply", "fit"}
    assert (report["nodes"], report["pods"]) == (4, 16)
    # Nodes are half full, so that what four pods leave and five more request is there.
    assert (report["moved"], report["placed"], report["fitting"]) == (4, 5, 5)
    assert report["peak_mebibytes"] > 0


def test_nodes_without_pods_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        what_if.main(["--nodes", "6", "--pods", "5"])
    assert "--pods" in capsys.readouterr().err
