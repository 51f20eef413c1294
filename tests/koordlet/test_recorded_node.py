"""From recorded kernel files to exactly what is told: every metric of koordlet, and the NodeMetric.

Where a change of what is told is meant, KOORDINATOR_WRITE_GOLDEN=1 writes the expected files anew, for a person to
compare with what they were.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.koordlet.recording import Recording
from tests.koordlet.replayed_node import ReplayedNode, Told

_RECORDED = Path(__file__).parent / "recorded"
_GATES = ("PSICollector", "NodeMetricPromMetrics", "HugePageReport")
_NGINX = {"name": "nginx", "qos": "LS", "priority": "koord-prod"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    recording = Recording.read(_RECORDED / "node.json")
    return ReplayedNode(tmp_path_factory.mktemp("node"), recording, _GATES, [_NGINX]).play()


def _check(name: str, text: str) -> None:
    file = _RECORDED / name
    if os.environ.get("KOORDINATOR_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_the_metrics(told: Told) -> None:
    _check("metrics.txt", told.metrics)


def test_the_node_metric(told: Told) -> None:
    _check("node_metric.json", json.dumps(told.node_metric, indent=2) + "\n")


def test_the_pod_that_burned_cpu_has_used_what_its_quota_let_it(told: Told) -> None:
    """The recording is of a pod with a quota of 50 milli-CPU: golden files alone would accept any figure."""
    usage = {pod["name"]: pod["podUsage"]["resources"]["cpu"] for pod in told.node_metric["podsMetric"]}
    assert 45 <= int(usage["p0"].removesuffix("m")) <= 55
