"""PodDisruptionBudgets have the same status under the embedded server's controller and under the real one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.embedded_thread import embedded_server
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms
from tests.real.test_volumes import program

Document = dict[str, Any]
_LABELS = {"app": "web"}
_CONTAINERS = [{"name": "main", "image": "image"}]
_WAIT_SECONDS = 30.0
_SUFFICIENT, _INSUFFICIENT = ("SufficientPods", ""), ("InsufficientPods", "")


@dataclass(frozen=True)
class Case:
    """``pods`` as ``OWNER`` or ``OWNER!`` for one that is not ready; ``-`` is nobody."""

    limit: Document
    pods: str
    expected: tuple[int, int, int, int]
    """currentHealthy, desiredHealthy, expectedPods, disruptionsAllowed."""
    condition: tuple[str, str]


CASES = {
    "number": Case({"minAvailable": 1}, "- - -!", (2, 1, 3, 1), _SUFFICIENT),
    "share-of-a-deployment": Case({"minAvailable": "50%"}, "owned owned owned owned", (4, 3, 5, 1), _SUFFICIENT),
    "missing-of-a-replica-set": Case({"maxUnavailable": 1}, "plain plain plain!", (2, 2, 3, 0), _INSUFFICIENT),
    "share-missing-of-a-stateful-set": Case({"maxUnavailable": "50%"}, "set set", (2, 1, 2, 1), _SUFFICIENT),
    "controller": Case({"maxUnavailable": "30%"}, "rc rc rc rc rc rc", (6, 4, 7, 2), _SUFFICIENT),
    "several": Case({"maxUnavailable": 8}, "owned plain set -", (4, 2, 10, 2), _SUFFICIENT),
    "no-pods": Case({"maxUnavailable": 1}, "", (0, 0, 0, 0), _INSUFFICIENT),
    "no-limit": Case({}, "-", (1, 0, 0, 0), _INSUFFICIENT),
    "nobodys": Case({"maxUnavailable": 1}, "- -", (2, 0, 0, 0), _INSUFFICIENT),
    "job": Case(
        {"maxUnavailable": 1},
        "job",
        (0, 0, 0, 0),
        ("SyncFailed", "jobs.batch does not implement the scale subresource"),
    ),
    "gone": Case({"maxUnavailable": 1}, "gone", (0, 0, 0, 0), ("SyncFailed", 'found no controllers for pod "gone-0"')),
    "odd": Case(
        {"maxUnavailable": 1},
        "odd",
        (0, 0, 0, 0),
        ("SyncFailed", 'no matches for kind "Odd" in version "odd.example.com/v1"'),
    ),
    # The garbage collector deletes the pod, and no kubelet finishes that: it is expected still, but not healthy.
    "gone-and-a-number": Case({"minAvailable": 1}, "gone", (0, 1, 1, 0), _INSUFFICIENT),
}


class BudgetFixture:
    """One namespace with workloads of all kinds, on either server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._server = ApiServer(kubeconfig)
        self._add("/api/v1/namespaces", {"metadata": {"name": "budgets"}})
        deployment = self._add_workload("apps/v1", "Deployment", "deployment", 5)
        self._owners: dict[str, Document] = {
            "owned": self._add_workload("apps/v1", "ReplicaSet", "owned", 9, owner=deployment),
            "plain": self._add_workload("apps/v1", "ReplicaSet", "plain", 3),
            "set": self._add_workload("apps/v1", "StatefulSet", "set", 2, serviceName="s"),
            "rc": self._add_workload("v1", "ReplicationController", "rc", 7),
            "job": {"apiVersion": "batch/v1", "kind": "Job"},
            "gone": {"apiVersion": "apps/v1", "kind": "ReplicaSet"},
            "odd": {"apiVersion": "odd.example.com/v1", "kind": "Odd"},
        }

    def play(self, name: str, case: Case) -> None:
        selector = {"matchLabels": {"case": name}}
        for index, text in enumerate(case.pods.split()):
            self._add_pod(f"{name}-{index}", name, text.removesuffix("!"), ready=not text.endswith("!"))
        budget = {"metadata": {"name": name}, "spec": {**case.limit, "selector": selector}}
        self._add(self.path("policy/v1", "poddisruptionbudgets"), budget)

    def status(self, name: str) -> tuple[tuple[int, ...], tuple[str, str]]:
        path = self.path("policy/v1", f"poddisruptionbudgets/{name}")
        status = self._server.request("GET", path).body["status"]
        counts = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
        condition: Document = next(iter(status.get("conditions") or []), {})
        numbers = tuple(status[count] for count in counts)
        return numbers, (condition.get("reason", ""), condition.get("message", ""))

    def evict(self, name: str) -> int:
        path = self.path("v1", f"pods/{name}/eviction")
        return self._server.request("POST", path, {"metadata": {"name": name}}).code

    @staticmethod
    def path(version: str, rest: str) -> str:
        return f"{'/api' if version == 'v1' else '/apis'}/{version}/namespaces/budgets/{rest}"

    def _add(self, path: str, document: Document) -> Document:
        response = self._server.request("POST", path, document)
        assert response.code == 201, response.message
        return response.body

    def _add_workload(
        self, version: str, kind: str, name: str, replicas: int, owner: Document | None = None, **spec: str
    ) -> Document:
        selector: Document = _LABELS if version == "v1" else {"matchLabels": _LABELS}
        template = {"metadata": {"labels": _LABELS}, "spec": {"containers": _CONTAINERS}}
        metadata: Document = {"name": name, **({"ownerReferences": [owner]} if owner else {})}
        document = {
            "metadata": metadata,
            "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
        }
        added = self._add(self.path(version, f"{kind.lower()}s"), document)
        return {"apiVersion": version, "kind": kind, "name": name, "uid": added["metadata"]["uid"], "controller": True}

    def _add_pod(self, name: str, case: str, owner: str, *, ready: bool) -> None:
        metadata: Document = {"name": name, "labels": {**_LABELS, "case": case}}
        if owner != "-":
            metadata["ownerReferences"] = [{"name": owner, "uid": owner, "controller": True, **self._owners[owner]}]
        self._add(self.path("v1", "pods"), {"metadata": metadata, "spec": {"nodeName": "n", "containers": _CONTAINERS}})
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"status": {"phase": "Running", "conditions": conditions}}
        assert self._server.request("PATCH", self.path("v1", f"pods/{name}/status"), status).code == 200


@pytest.fixture(scope="module", params=["real", "embedded"])
def fixture(
    request: pytest.FixtureRequest, real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BudgetFixture]:
    folder = tmp_path_factory.mktemp("budgets")
    if request.param == "embedded":
        with embedded_server(folder) as kubeconfig:
            yield BudgetFixture(kubeconfig)
        return
    plane = ControlPlane(real_programs.kubernetes, folder / "cluster")
    plane.start()
    manager = str(real_programs.kubernetes / "kube-controller-manager")
    options = (
        f"--kubeconfig={plane.kubeconfig}",
        "--controllers=disruption,garbage-collector-controller",
        "--leader-elect=false",
        "--secure-port=0",
    )
    try:
        with program(folder, manager, *options):
            yield BudgetFixture(plane.kubeconfig)
    finally:
        plane.stop()


@pytest.mark.parametrize("name", CASES)
def test_status(fixture: BudgetFixture, name: str) -> None:
    case = CASES[name]
    fixture.play(name, case)
    _await(fixture, name, case.expected, case.condition)


def test_evictions_use_up_the_budget(fixture: BudgetFixture) -> None:
    fixture.play("evicted", Case({"minAvailable": 1}, "- - -", (3, 1, 3, 2), _SUFFICIENT))
    _await(fixture, "evicted", (3, 1, 3, 2), _SUFFICIENT)
    assert [fixture.evict(f"evicted-{index}") for index in range(3)] == [201, 201, 429]
    _await(fixture, "evicted", (1, 1, 3, 0), _INSUFFICIENT)


def _await(fixture: BudgetFixture, name: str, counts: tuple[int, ...], condition: tuple[str, str]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while (found := fixture.status(name)) != (counts, condition) and time.monotonic() < end:
        time.sleep(0.1)
    assert found == (counts, condition)
