"""A pod that takes the CPUs of a simulated node is named wherever koordlet tells who disturbs whom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, NODE_METRICS, NODES, PODS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.base.clock import ManualClock
from koordinator.cli.explain_failure import EXPLAINED
from koordinator.cli.main import main
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario import default_scenario, scale
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster
from tests.cluster.nodes.bound_pods import pod_document
from tests.in_memory_api import Document, InMemoryApi

_NODE = "small-0"
_CALM = 420
"""Seconds in which koordlet starts and learns what is normal."""
_LOUD = 180


@dataclass(frozen=True)
class _Reported:
    """What koordlet has told. ``calm`` and ``loud`` are its metrics, before the antagonist came and while it ran."""

    api: InMemoryApi
    calm: str
    loud: str

    @property
    def report(self) -> dict[str, Any]:
        status: dict[str, Any] = self.api.document(NODE_METRICS, _NODE)["status"]
        return status


def _best_effort(name: str, milli: int) -> Document:
    """It takes what it may; the node has 8 CPUs."""
    amounts = {"kubernetes.io/batch-cpu": str(milli), "kubernetes.io/batch-memory": "2Gi"}
    pod = pod_document(name, _NODE, cpu="", priority=5500)
    pod["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return pod


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> _Reported:
    api = InMemoryApi()

    async def play() -> tuple[str, str]:
        clock = cast("ManualClock", api.clock)
        fleet = Fleet(
            api.client(), scale(default_scenario(), 3),
            clock=clock, random=Random(1), concurrency=8, koordlets=1, kernels=tmp_path_factory.mktemp("kernels"),
        )  # fmt: skip
        running = asyncio.create_task(fleet.run())
        try:
            while not fleet.nodes:
                await clock.advance(0.5)
            api.put(PODS, pod_document("web", _NODE, cpu="4", memory="8Gi", priority=9500))
            api.put(PODS, _best_effort("innocent", 500))
            await clock.advance(_CALM)
            calm = _exposed(fleet)
            api.put(PODS, _best_effort("miner", 7500))
            await clock.advance(_LOUD)
            return calm, _exposed(fleet)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return _Reported(api, *asyncio.run(play()))


def _exposed(fleet: Fleet) -> str:
    metrics = fleet.koordlet_metrics(_NODE)
    assert metrics is not None
    return metrics.exposition()[0].decode()


def test_the_event_of_the_victim_names_the_antagonist(reported: _Reported) -> None:
    events = [each for each in reported.api.all(EVENTS) if each["reason"] == "InterferenceDetected"]
    assert [each["involvedObject"]["name"] for each in events] == ["web"]
    wanted = r"cpu-pressure is .* %, normally .*; suspect: BE pod default/miner .*, advice: suppress it"
    assert re.fullmatch(wanted, events[0]["message"])


def test_the_metric_names_the_antagonist(reported: _Reported) -> None:
    (line,) = _correlations(reported.loud)
    assert {'indicator="cpu-pressure"', 'pod_name="web"', 'suspect_name="miner"'} <= set(re.split("[{},]", line))


def _correlations(metrics: str) -> list[str]:
    return [line for line in metrics.splitlines() if line.startswith("koordlet_pod_interference_correlation{")]


def test_nobody_is_named_while_nothing_is_wrong(reported: _Reported) -> None:
    assert _correlations(reported.calm) == []


def test_the_report_names_the_antagonist_alone(reported: _Reported) -> None:
    suspects = {
        (pod["name"], suspect["pod"])
        for pod in reported.report["podsMetric"]
        for finding in pod.get("extensions", {}).get("Object", {}).get("interference", ())
        for suspect in finding["suspects"]
    }
    assert suspects == {("web", "default/miner")}


@pytest.fixture
def cluster(reported: _Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExplainedCluster]:
    """One that has what koordlet has reported."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    with explained_cluster(tmp_path / "explained") as found:
        for definition in custom_resource_definitions():
            if definition["spec"]["names"]["kind"] == "NodeMetric":
                found.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        found.create(NODES, {"metadata": {"name": _NODE}})
        found.create(NODE_METRICS, {"metadata": {"name": _NODE}, "spec": {}})
        found.set_status(NODE_METRICS, _NODE, reported.report)
        yield found


def test_explain_names_the_antagonist(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "interference", _NODE, *cluster.arguments]) == EXPLAINED
    printed = capsys.readouterr().out
    assert "default/web (LS) waits for CPUs" in printed
    assert "default/miner" in printed
