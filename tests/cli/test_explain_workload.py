"""``koord explain deployment``: a workload without pods is explained by who should make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from koordinator.api.kinds import DEPLOYMENTS, EVENTS, PODS, REPLICA_SETS
from koordinator.cli.explain_failure import EXPLAINED, NOT_THERE
from koordinator.cli.explain_workload import WorkloadFacts, workload_state
from koordinator.cli.main import main
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

Captured = pytest.CaptureFixture[str]
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
SPEC = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


def facts(kind: str = "Deployment", status: Any = None, generation: int = 1, **spec: Any) -> WorkloadFacts:
    metadata = {"namespace": "shop", "name": "web", "generation": generation}
    return WorkloadFacts(kind, {"metadata": metadata, "spec": {"replicas": 2, **spec}, "status": status or {}})


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (facts(), "deployment shop/web has no pods, and no controller has looked at it"),
        (facts(replicas=0), "deployment shop/web asks for no pods"),
        (facts(paused=True), "deployment shop/web is paused, and has no pods"),
        (facts(status={"observedGeneration": 1}), "deployment shop/web has none of its 2 pods yet"),
        (
            facts(status={"observedGeneration": 1}, generation=2),
            "deployment shop/web has no pods yet: its controller has not seen its last change",
        ),
        (
            facts("DaemonSet", {"observedGeneration": 1, "desiredNumberScheduled": 0}),
            "daemonset shop/web has no pods, since no node is one that it may use",
        ),
        (facts("Job", {"startTime": "2026-01-01T00:00:00Z"}), "job shop/web has none of its 1 pods yet"),
        (
            facts(status={"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]}),
            "deployment shop/web has none of its 2 pods: they could not be created",
        ),
    ],
)
def test_the_first_reason_that_applies_is_said(found: WorkloadFacts, sentence: str) -> None:
    assert workload_state(found).sentence == sentence


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("workload")) as found:
        found.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": SPEC}, "default")
        refused = found.create(DEPLOYMENTS, {"metadata": {"name": "refused"}, "spec": SPEC}, "default")
        made = found.create(REPLICA_SETS, _owned("refused-1", "Deployment", refused, {"spec": SPEC}), "default")
        about = {"kind": "ReplicaSet", "namespace": "default", "name": "refused-1", "uid": made.metadata.uid}
        said = {"reason": "FailedCreate", "message": "exceeded quota: small", "source": {"component": "replicaset"}}
        found.create(EVENTS, {"metadata": {"name": "e"}, "involvedObject": about, **said}, "default")
        running = found.create(DEPLOYMENTS, {"metadata": {"name": "running"}, "spec": SPEC}, "default")
        made = found.create(REPLICA_SETS, _owned("running-1", "Deployment", running, {"spec": SPEC}), "default")
        found.create(PODS, _owned("running-1-a", "ReplicaSet", made, {"spec": TEMPLATE["spec"]}), "default")
        yield found


def _owned(name: str, kind: str, owner: Any, body: dict[str, Any]) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "controller": True}
    reference |= {"name": owner.metadata.name, "uid": owner.metadata.uid}
    return {"metadata": {"name": name, "ownerReferences": [reference]}, **body}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["deployment", "web"], "does kube-controller-manager run, or the workload controllers of koord up?"),
        (["deploy/refused"], "Event FailedCreate of replicaset: exceeded quota: small"),
        (["deployment", "running"], "deployment default/running has 1 of 2 pods (1 Pending)"),
        (["deployments", "running"], "koord explain pod default/running-1-a says why it waits."),
    ],
)
def test_a_person_types_it(words: list[str], said: str, cluster: ExplainedCluster, capsys: Captured) -> None:
    assert main(["explain", *words, *cluster.arguments]) == EXPLAINED
    assert said in " ".join(capsys.readouterr().out.split())


def test_one_that_is_not_there_is_answered_by_what_is(cluster: ExplainedCluster, capsys: Captured) -> None:
    assert main(["explain", "deployment", "weeb", *cluster.arguments]) == NOT_THERE
    assert "; there is web" in capsys.readouterr().err
