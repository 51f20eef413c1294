from __future__ import annotations

import json

import pytest

from benchmarks import scheduler_bytecodes


def test_every_stage_of_a_pod_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nodes", "5", "--warm-up", "10", "--measured", "10", "--functions", "3"]
    assert scheduler_bytecodes.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)["per_pod"]
    assert len(found.pop("functions")) == 3
    assert found.pop("all") == pytest.approx(sum(found.values()), abs=10)
    assert min(found.values()) > 50
    assert set(found) == {
        *("cluster state, event handlers", "decoding, informer", "queue", "decision, without plugins"),
        *("plugins in the decision", "binding", "Scheduled events", "metrics", "event loop"),
    }
