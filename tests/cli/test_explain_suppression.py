"""``koord explain node`` on what koordlet reports: best-effort pods that it holds down, and what it goes by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.annotations import KOORDLET_CONFIGURATION
from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODES
from koordinator.api.manifests import custom_resource_definitions
from koordinator.cli.explain_failure import API_ALONE, EXPLAINED
from koordinator.cli.explain_node import suppression_of
from koordinator.cli.main import main
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

SAID = {
    "policy": "cfsQuota",
    "cpus": 3.2,
    "since": "2026-03-01T14:05:00Z",
    "why": "65 % of 8 CPUs, less 1.7 CPUs of other pods and 0.3 CPUs of the system",
}
CONFIGURATION = {
    "resourceVersion": "8214",
    "since": "2026-03-01T13:00:00Z",
    "refused": "resourceVersion 9000: data.v: 'loud' is not usable: a whole number",
}
KNOWN_TO_SCHEDULER = {
    "node": "held",
    "cordoned": False,
    "taints": [],
    "conditions": [],
    "resources": [],
    "pods": {"running": 3, "limit": 110},
    "nominatedPods": [],
    "plugins": {},
    "placedLately": 0,
    "evaluated": {"pods": 0, "wouldTake": 0},
    "rejectedBy": [],
}


def pod(name: str, cpu: str, said: dict[str, Any] | None = None) -> dict[str, Any]:
    extensions = {} if said is None else {"extensions": {"Object": {"suppression": said}}}
    return {"namespace": "jobs", "name": name, "podUsage": {"resources": {"cpu": cpu}}, **extensions}


STATUS = {
    "updateTime": "2026-03-01T14:05:30Z",
    "podsMetric": [pod("a", "1500m", SAID), pod("web", "1700m"), pod("b", "1650m", SAID)],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("explained")) as found:
        for definition in custom_resource_definitions():
            if definition["spec"]["names"]["kind"] in ("NodeMetric", "NodeResourceTopology"):
                found.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        for name, status in (("held", STATUS), ("free", {**STATUS, "podsMetric": [pod("web", "1700m")]})):
            found.create(NODES, {"metadata": {"name": name}})
            found.create(NODE_METRICS, {"metadata": {"name": name}, "spec": {}})
            found.set_status(NODE_METRICS, name, status)
            found.documents[name] = {**KNOWN_TO_SCHEDULER, "node": name}
        annotations = {KOORDLET_CONFIGURATION: json.dumps(CONFIGURATION)}
        metadata = {"name": "held", "annotations": annotations}
        found.create(NODE_RESOURCE_TOPOLOGIES, {"metadata": metadata, "topologyPolicies": [], "zones": []})
        yield found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")


def explained(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["explain", "node", *arguments, f"--kubeconfig={cluster.kubeconfig}"])
    return status, capsys.readouterr().out


Captured = pytest.CaptureFixture[str]


def test_to_how_much_since_when_and_why(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, out = explained(cluster, capsys, "held", f"--scheduler=http://127.0.0.1:{cluster.plain_port}")
    assert status == EXPLAINED
    assert (
        "2 best-effort pods have been suppressed to 3.2 CPUs since 2026-03-01T14:05:00Z: 65 % of 8 CPUs, less 1.7 CPUs "
        "of other pods and 0.3 CPUs of the system" in out
    )
    assert "policy cfsQuota; 3.15 CPUs used on average, reported at 2026-03-01T14:05:30Z" in out


def test_which_configuration_is_in_force(cluster: ExplainedCluster, capsys: Captured) -> None:
    _, out = explained(cluster, capsys, "held", f"--scheduler=http://127.0.0.1:{cluster.plain_port}")
    assert "koordlet goes by its ConfigMap of resourceVersion 8214, since 2026-03-01T13:00:00Z\n" in out
    assert "  a newer ConfigMap was refused: resourceVersion 9000: data.v: 'loud' is not usable" in out
    _, out = explained(cluster, capsys, "free", f"--scheduler=http://127.0.0.1:{cluster.plain_port}")
    assert "ConfigMap" not in out


def test_for_programs(cluster: ExplainedCluster, capsys: Captured) -> None:
    _, out = explained(cluster, capsys, "held", f"--scheduler=http://127.0.0.1:{cluster.plain_port}", "-o", "json")
    held = {"pods": ["jobs/a", "jobs/b"], "used": 3.15, "reported": "2026-03-01T14:05:30Z"}
    document = json.loads(out)
    assert (document["suppression"], document["koordletConfiguration"]) == (SAID | held, CONFIGURATION)


def test_without_a_scheduler_too(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, out = explained(cluster, capsys, "held", "--port=1")
    assert (status, "suppressed to 3.2 CPUs" in out) == (API_ALONE, True)


def test_a_node_that_holds_nobody_down_says_nothing(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, out = explained(cluster, capsys, "free", f"--scheduler=http://127.0.0.1:{cluster.plain_port}")
    assert (status, "suppressed" in out) == (EXPLAINED, False)


@pytest.mark.parametrize("metric", [None, {}, {"status": {}}, {"status": {"podsMetric": [{"extensions": None}]}}])
def test_a_report_that_says_nothing_of_it(metric: dict[str, Any] | None) -> None:
    assert suppression_of(metric) is None
