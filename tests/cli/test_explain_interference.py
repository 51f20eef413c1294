"""``koord explain interference``: what koordlet has written into the NodeMetric, for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODE_METRICS, NODES
from koordinator.api.manifests import custom_resource_definitions
from koordinator.cli.explain_failure import EXPLAINED, NOT_THERE
from koordinator.cli.main import main
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

SUSPECT = {"pod": "team/job", "qos": "BE", "correlation": 0.81, "confidence": 0.78, "advice": "suppress"}
FINDING = {
    "indicator": "cpu-pressure",
    "since": "2026-03-01T12:00:00Z",
    "value": 42.1,
    "normal": 1.5,
    "limit": 5.0,
    "suspects": [SUSPECT],
}


NETWORK = {"indicator": "tcp-retransmits", "value": 8.1, "normal": 0.2, "limit": 1.0}
TRIED = {"suspect": "team/job", "indicator": "cpu-pressure", "remedy": "cap", "what": "2.00 of 4.00 cores"}
CAPPED = TRIED | {"since": "2026-03-01T12:02:00Z", "before": 42.1, "after": 38.0, "result": "tooLittle"}
PINNED = TRIED | {
    "since": "2026-03-01T12:03:00Z", "remedy": "pin", "what": "CPUs 4-7 of 0-7", "before": 42.1, "result": "trying"
}  # fmt: skip


def reported(*pods: dict[str, Any]) -> dict[str, Any]:
    return {"updateTime": "2026-03-01T12:01:00Z", "podsMetric": list(pods)}


def pod(name: str, *findings: dict[str, Any], remedies: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    said = {"interference": list(findings)} if findings else {}
    said |= {"interferenceRemedies": list(remedies)} if remedies else {}
    extensions = {"extensions": {"Object": said}} if said else {}
    return {"namespace": "shop", "name": name, "qos": "LS", **extensions}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("explained")) as found:
        for definition in custom_resource_definitions():
            if definition["spec"]["names"]["kind"] == "NodeMetric":
                found.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        for name, pods in (
            ("loud", (pod("web", FINDING), pod("db"))),
            ("odd", (pod("web", {**FINDING, "suspects": []}),)),
            ("calm", (pod("web"),)),
            ("treated", (pod("web", FINDING | NETWORK, remedies=[PINNED, CAPPED]),)),
            ("quiet", (pod("web", remedies=[CAPPED | {"result": "released"}]),)),
        ):
            found.create(NODES, {"metadata": {"name": name}})
            found.create(NODE_METRICS, {"metadata": {"name": name}, "spec": {}})
            found.set_status(NODE_METRICS, name, reported(*pods))
        found.create(NODES, {"metadata": {"name": "bare"}})
        yield found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")


def explained(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["explain", "interference", *arguments, *cluster.arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


Captured = pytest.CaptureFixture[str]


def test_who_suffers_from_what_and_from_whom(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, out, _ = explained(cluster, capsys, "loud")
    assert status == EXPLAINED
    assert "loud  1 finding, reported at 2026-03-01T12:01:00Z" in out
    assert "shop/web (LS) waits for CPUs" in out
    assert "42.1 % of the time, normally 1.5 (limit 5.0), since 2026-03-01T12:00:00Z" in out
    (row,) = [line for line in out.splitlines() if "team/job" in line]
    assert "suppress it: a batch pod can be held down" in row


def test_what_was_done_in_its_order_and_what_it_has_brought(cluster: ExplainedCluster, capsys: Captured) -> None:
    out = " ".join(explained(cluster, capsys, "treated")[1].split())
    assert "has to send again what was lost on the network" in out
    assert "tcp-retransmits: 8.1 % of the segments, normally 0.2 (limit 1.0)" in out
    done = out.partition("What was done about it")[2]
    assert done.index("cap: 2.00") < done.index("pin: CPUs")
    assert "38.0" in done


def test_what_was_done_is_shown_after_it_is_over(cluster: ExplainedCluster, capsys: Captured) -> None:
    out = explained(cluster, capsys, "quiet")[1]
    assert "no pod suffers from another" in out
    assert "What was done about it" in out


def test_nobody_explains_it(cluster: ExplainedCluster, capsys: Captured) -> None:
    assert "No pod of the node explains it." in explained(cluster, capsys, "odd")[1]


def test_a_node_where_nobody_suffers(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, out, _ = explained(cluster, capsys, "calm")
    assert status == EXPLAINED
    assert "no pod suffers from another, as far as is known" in out
    assert "InterferenceDetection" in out


def test_for_programs(cluster: ExplainedCluster, capsys: Captured) -> None:
    document = json.loads(explained(cluster, capsys, "loud", "-o", "json")[1])
    assert document["victims"] == [{"pod": "shop/web", **FINDING, "qos": "LS"}]
    assert document["remedies"] == []


@pytest.mark.parametrize(("name", "said"), [("bare", "node bare has no NodeMetric"), ("none", "none")])
def test_what_is_not_there(cluster: ExplainedCluster, capsys: Captured, name: str, said: str) -> None:
    status, _, err = explained(cluster, capsys, name)
    assert (status, said in err) == (NOT_THERE, True)
