"""``koord explain`` of what the scheduler does not know: looked up in the API, as a person runs the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from koordinator.api.kinds import EVENTS, NAMESPACES, NODES, PODS
from koordinator.cli.explain_failure import API_ALONE, EXPLAINED, NOT_THERE
from koordinator.cli.main import main
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster
from tests.free_ports import free_ports


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("explained")) as found:
        found.create(NAMESPACES, {"metadata": {"name": "shop"}})
        found.create(PODS, pod("elsewhere"), "shop")
        found.create(PODS, pod("pending"), "default")
        found.create(PODS, pod("other", schedulerName="my-scheduler"), "default")
        found.create(PODS, pod("placed", schedulerName="working-scheduler", nodeName="n1"), "default")
        found.create(PODS, pod("waiting", schedulerName="working-scheduler"), "default")
        found.create(PODS, pod("gated", schedulingGates=[{"name": "example.com/quota"}]), "default")
        found.create(NODES, {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
        allocatable = {"cpu": "7800m", "memory": "8Gi", "kubernetes.io/batch-cpu": "4000", "pods": "110"}
        ready = [{"type": "Ready", "status": "True"}]
        found.set_status(NODES, "n1", {"allocatable": allocatable, "conditions": ready})
        yield found


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example"}]
    return {"metadata": {"name": name}, "spec": {"schedulerName": "koord-scheduler", "containers": containers, **spec}}


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["explain", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


Captured = pytest.CaptureFixture[str]


def test_a_pod_of_another_namespace(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, out, err = explained(capsys, "pod", "elsewhere", *cluster.arguments)
    assert (status, out) == (NOT_THERE, "")
    assert err.startswith('koord: there is no pod default/elsewhere in the cluster "')
    assert err.endswith("; there is one in namespace shop. koord explain pod elsewhere -n shop\n")


def test_a_pod_that_is_nowhere(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, _, err = explained(capsys, "pod", "pendign", *cluster.arguments)
    assert (status, "; there is pending. kubectl get pods -n default" in err) == (NOT_THERE, True), err


def test_a_namespace_that_is_not_there(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, _, err = explained(capsys, "pod", "web", "-n", "nowhere", *cluster.arguments)
    assert (status, ", nor a namespace nowhere. " in err) == (NOT_THERE, True), err


def test_a_pod_of_a_scheduler_that_nobody_knows(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, out, err = explained(capsys, "pod", "other", *cluster.arguments)
    assert (status, err) == (EXPLAINED, "")
    assert out.startswith(
        "pod default/other asks for the scheduler `my-scheduler`; koord-scheduler does not look at it, and nothing "
        "shows that another scheduler does: no event, no condition, no other pod that it placed\n"
    )


def test_a_pod_of_another_scheduler_that_works(cluster: ExplainedCluster, capsys: Captured) -> None:
    _, out, _ = explained(capsys, "pod", "waiting", "-o=json", *cluster.arguments)
    assert json.loads(out)["api"]["state"] == "otherScheduler"


def test_a_gated_pod_that_the_scheduler_does_not_know(cluster: ExplainedCluster, capsys: Captured) -> None:
    _, out, _ = explained(capsys, "pod", "gated", *cluster.arguments)
    assert out.startswith("pod default/gated is held back by the scheduling gate example.com/quota;")


def test_the_cluster_that_was_queried_is_named(cluster: ExplainedCluster, capsys: Captured) -> None:
    _, out, _ = explained(capsys, "pod", "gated", *cluster.arguments)
    assert f"of {cluster.kubeconfig}, https://127.0.0.1:" in out.splitlines()[-1]
    assert out.splitlines()[-1].startswith('Queried: the cluster "')


def test_without_a_scheduler_the_api_is_quoted(cluster: ExplainedCluster, capsys: Captured) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: no room"}
    cluster.set_status(PODS, "pending", {"conditions": [condition]}, "default")
    uid = cluster.do(cluster.client.get(PODS, "pending", "default")).metadata.uid
    event = {
        "metadata": {"name": "pending.1"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "pending", "uid": uid},
        "reason": "FailedScheduling",
        "message": "an event about it",
        "type": "Warning",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "koord-scheduler"},
    }
    cluster.create(EVENTS, event, "default")
    (nobody,) = free_ports(1)
    arguments = ["pod", "pending", f"--kubeconfig={cluster.kubeconfig}", f"--port={nobody}"]
    status, out, err = explained(capsys, *arguments)
    assert status == API_ALONE
    assert err.startswith("koord: koord-scheduler could not be queried, this is from the API alone: the scheduler at")
    assert "connection refused" in err
    assert len(err.splitlines()) == 1
    assert out.startswith("pod default/pending is pending\n  0/1 nodes: no room\n")
    assert "an event about it" in out


def test_a_scheduler_that_leads_elsewhere_is_reached_by_port_forward(
    cluster: ExplainedCluster, capsys: Captured
) -> None:
    from koordinator.api.kinds import LEASES

    cluster.create(
        LEASES, {"metadata": {"name": "far"}, "spec": {"holderIdentity": "koord-scheduler-7d_1"}}, "koordinator-system"
    )
    status, _, err = explained(capsys, "pod", "gated", *cluster.arguments, "--lease=koordinator-system/far")
    assert status == API_ALONE
    assert "kubectl port-forward -n koordinator-system pod/koord-scheduler-7d 10251" in err
    assert f"--secure-port={cluster.port} --bind-address=::" in err


def test_what_the_scheduler_knows_is_said_of_a_pod_that_is_pending(cluster: ExplainedCluster, capsys: Captured) -> None:
    cluster.documents["default/pending"] = {
        "pod": "default/pending",
        "queue": {"pool": "active", "attempts": 0},
        "attempts": [],
    }
    try:
        status, out, _ = explained(capsys, "po/pending", *cluster.arguments)
    finally:
        del cluster.documents["default/pending"]
    assert (status, out.splitlines()[0]) == (
        EXPLAINED,
        "default/pending  is pending: it waits for its turn (not tried yet)",
    )


def test_a_pod_that_is_gone_is_called_so_before_it_is_said_how_it_was_tried(
    cluster: ExplainedCluster, capsys: Captured
) -> None:
    cluster.documents["default/gone"] = {"pod": "default/gone", "attempts": []}
    try:
        _, out, _ = explained(capsys, "pod", "gone", *cluster.arguments)
    finally:
        del cluster.documents["default/gone"]
    assert out.startswith("there is no pod default/gone in the cluster")


def test_a_name_that_is_a_node_s_is_taken_for_it(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, out, _ = explained(capsys, "n1", *cluster.arguments)
    assert status == EXPLAINED
    assert out.startswith("node n1 is ready\n")
    assert "n1 was taken for a node; if it is a pod: koord explain pod n1" in out


def test_a_name_that_is_nobody_s_is_neither(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, _, err = explained(capsys, "nobody", *cluster.arguments)
    assert (status, err.startswith("koord: no node is named nobody, and there is no pod")) == (NOT_THERE, True), err


def test_a_node_that_the_scheduler_does_not_know_has_its_units(cluster: ExplainedCluster, capsys: Captured) -> None:
    _, out, _ = explained(capsys, "no", "n1", *cluster.arguments)
    assert "taint a:NoSchedule" in out
    assert "allocatable: 7.8 cores of cpu, 4000m of kubernetes.io/batch-cpu, 8Gi of memory, 110 pods" in out
    assert "koord-scheduler does not know of it yet" in out


def test_a_node_that_is_not_there(cluster: ExplainedCluster, capsys: Captured) -> None:
    status, _, err = explained(capsys, "node", "n11", *cluster.arguments)
    assert (status, "; there is n1. kubectl get nodes" in err) == (NOT_THERE, True), err


def test_json_has_the_cluster_and_the_state(cluster: ExplainedCluster, capsys: Captured) -> None:
    _, out, _ = explained(capsys, "pod", "gated", "-o=json", *cluster.arguments)
    document = json.loads(out)
    assert document["cluster"]["server"].startswith("https://127.0.0.1:")
    assert document["api"]["state"] == "gated"
