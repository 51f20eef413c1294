"""koord-descheduler with the rights of config/rbac and no others: nothing is forbidden, and no right is idle.

Nobody else runs there: the test is the scheduler, the controllers and the kubelet. Every right is used, so that without
any of them something of what is done here would be refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.real.audited import NAMESPACE, Audited, Right, audited
from tests.real.manager_cluster import prepare
from tests.real.polling import until, until_nothing_is_left
from tests.real.programs import RealPrograms

CORE: Final = "/api/v1"
PODS: Final = f"{CORE}/namespaces/default/pods"
REPLICA_SETS: Final = "/apis/apps/v1/namespaces/default/replicasets"
ROLLOUTS: Final = "/apis/example.com/v1/namespaces/default/rollouts"
SCHEDULING: Final = "scheduling.koordinator.sh/v1alpha1"
JOBS: Final = f"/apis/{SCHEDULING}/podmigrationjobs"
RESERVATIONS: Final = f"/apis/{SCHEDULING}/reservations"
DRAINS: Final = f"/apis/{SCHEDULING}/drainnodes"
DRAIN_GROUPS: Final = f"/apis/{SCHEDULING}/drainnodegroups"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCALE: Final = ("get", "*", "*/scale")
"""Of any kind that controls pods and is not Kubernetes' own."""
SECONDS: Final = 60.0
ELECTION: Final = {"leaderElect": True, "resourceNamespace": NAMESPACE}
_MIGRATION, _DIRECT = [{"name": "MigrationController"}], [{"name": "DefaultEvictor"}]
_JOBS_PROFILE: Final = {
    "name": "jobs",
    "plugins": {
        "evict": {"enabled": _MIGRATION},
        "filter": {"enabled": _MIGRATION},
        "balance": {"enabled": [{"name": "LowNodeLoad"}]},
    },
    "pluginConfig": [
        {"name": "LowNodeLoad", "args": {"expectedHighThresholds": {"cpu": 90}}},
        {
            "name": "MigrationController",
            "args": {
                "gangPolicy": "Whole",
                "evictQPS": 100,
                "evictBurst": 100,
                "objectLimiters": {"workload": {"duration": "0s"}},
            },
        },
    ],
}
_PROTECTED: Final = {"PodsWithPVC": {"protectedStorageClasses": [{"name": "local"}]}}
_DIRECT_PROFILE: Final = {
    "name": "direct",
    "plugins": {
        "balance": {"enabled": [{"name": "ScaleDownBinPack"}]},
        "evict": {"enabled": _DIRECT, "disabled": [{"name": "*"}]},
        "filter": {"enabled": _DIRECT, "disabled": [{"name": "*"}]},
    },
    "pluginConfig": [
        {
            "name": "DefaultEvictor",
            "args": {
                "namespaceLabelSelector": {"matchLabels": {"a": "b"}},
                "priorityThreshold": {"name": "important"},
                "podProtections": {"extraEnabled": ["PodsWithPVC", "PodsWithoutPDB"], "config": _PROTECTED},
            },
        }
    ],
}


@pytest.fixture
def books(real_programs: RealPrograms, tmp_path: Path) -> Iterator[Audited]:
    with audited(real_programs.kubernetes, tmp_path, "koord-descheduler") as made:
        yield made


@contextmanager
def descheduler(books: Audited, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    document = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "1s",
        "leaderElection": ELECTION,
        "clientConnection": {"kubeconfig": str(books.kubeconfig)},
        "healthzBindAddress": "127.0.0.1:0",
        "metricsBindAddress": "127.0.0.1:0",
        "profiles": [_JOBS_PROFILE, _DIRECT_PROFILE],
    }
    path = folder / "descheduler.yaml"
    path.write_text(yaml.safe_dump(document))
    command = [
        sys.executable,
        "-m",
        "koordinator.descheduler",
        f"--config={path}",
        "--feature-gates=NodeDrain=true,GenericWorkload=true",
    ]
    with (folder / "descheduler.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def definition(group: str, version: str, kind: str) -> dict[str, Any]:
    """Of a workload that has a scale, with whatever fields."""
    plural = f"{kind.lower()}s"
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"scale": scale}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


def owned_pod(name: str, node: str, owner: dict[str, Any]) -> dict[str, Any]:
    """A pod that may always be moved; without grace, since no kubelet is there to end it."""
    metadata = {
        "name": name,
        "labels": {"app": name},
        "annotations": {"descheduler.alpha.kubernetes.io/evict": "true"},
        "ownerReferences": [owner],
    }
    containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]
    spec = {
        "nodeName": node,
        "schedulerName": "koord-scheduler",
        "terminationGracePeriodSeconds": 0,
        "containers": containers,
    }
    return {"metadata": metadata, "spec": spec}


def give_it_nodes_and_pods(books: Audited) -> None:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "20"}
    for name in ("n1", "n2", "n3", "n4"):
        status = {"capacity": amounts, "allocatable": amounts}
        books.create(f"{CORE}/nodes", {"metadata": {"name": name, "labels": {"node": name}}, "status": status})
    for group, version, kind in (
        ("apps.kruise.io", "v1alpha1", "CloneSet"),
        ("apps.kruise.io", "v1beta1", "StatefulSet"),
        ("example.com", "v1", "Rollout"),
    ):
        books.create(DEFINITIONS, definition(group, version, kind))
    books.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "important"}, "value": 1000})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 4, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    books.create(REPLICA_SETS, {"metadata": {"name": "web"}, "spec": spec})
    until(lambda: books.plane.request("GET", ROLLOUTS)[0] == 200, SECONDS, "Rollouts")
    rollout = {"apiVersion": "example.com/v1", "kind": "Rollout", "metadata": {"name": "web"}, "spec": {"replicas": 4}}
    books.create(ROLLOUTS, rollout)
    web = owner_of(books, "apps/v1", "ReplicaSet", f"{REPLICA_SETS}/web")
    for name in ("deleted", "annotated", "evicted", "reserved", "ordered", "refused"):
        books.create(PODS, owned_pod(name, "n1", web))
    books.create(PODS, owned_pod("drained", "n2", web))
    books.create(PODS, owned_pod("blocked", "n3", web))
    books.create(PODS, owned_pod("rolled", "n1", owner_of(books, "example.com/v1", "Rollout", f"{ROLLOUTS}/web")))
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "blocked"}}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    books.create(budgets, {"metadata": {"name": "blocked"}, "spec": budget})
    # No budget protects a pod that does not run yet.
    assert books.plane.request("PATCH", f"{PODS}/blocked/status", {"status": {"phase": "Running"}})[0] == 200


def owner_of(books: Audited, version: str, kind: str, path: str) -> dict[str, Any]:
    metadata = books.plane.request("GET", path)[1]["metadata"]
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


def give_it_jobs(books: Audited) -> None:
    def job(name: str, mode: str = "EvictDirectly", policy: str = "", **spec: Any) -> None:
        labels = {"koordinator.sh/evict-policy": policy} if policy else {}
        document = {"apiVersion": SCHEDULING, "kind": "PodMigrationJob", "metadata": {"name": name, "labels": labels}}
        books.create(
            JOBS, {**document, "spec": {"podRef": {"namespace": "default", "name": name}, "mode": mode, **spec}}
        )

    job("deleted", policy="Delete")
    job("annotated", policy="SoftEviction")
    job("evicted")
    job("reserved", "ReservationFirst")
    # The definition says what a ttl is: the Reservation is refused time and again, which is told as a series.
    job("refused", "ReservationFirst", reservationOptions={"template": {"spec": {"ttl": 7}}})
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"template": template, "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}]}
    kind = {"apiVersion": SCHEDULING, "kind": "Reservation"}
    books.create(RESERVATIONS, {**kind, "metadata": {"name": "mine"}, "spec": spec})
    job("ordered", "ReservationFirst", reservationOptions={"reservationRef": {"name": "mine"}})


def give_it_drains(books: Audited) -> None:
    def drain(name: str, node: str, **spec: Any) -> None:
        document = {"apiVersion": SCHEDULING, "kind": "DrainNode", "metadata": {"name": name}}
        books.create(DRAINS, {**document, "spec": {"nodeName": node, **spec}})

    drain("reserving", "n2", ttl="1h")
    drain("blocked", "n3", migrationMode="EvictDirectly")
    # Over before it began, and for so long that it is deleted.
    drain("over", "n1", ttl="-10m")
    group = {"apiVersion": SCHEDULING, "kind": "DrainNodeGroup", "metadata": {"name": "empty"}}
    books.create(DRAIN_GROUPS, {**group, "spec": {"nodeSelector": {"matchLabels": {"node": "n4"}}}})


def give_up(books: Audited) -> None:
    """The room that was reserved is not found, and the drains are called off."""
    until(lambda: reservation_of(books, "reserved") and reservation_of_drain(books), SECONDS, "Reservations")
    conditions = [{"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
    path = f"{RESERVATIONS}/{reservation_of(books, 'reserved')}/status"
    status, response = books.plane.request("PATCH", path, {"status": {"phase": "Failed", "conditions": conditions}})
    assert status == 200, response

    def blocked_jobs() -> list[dict[str, Any]]:
        return [each for each in jobs(books) if each["metadata"]["name"].startswith("blocked-")]

    until(blocked_jobs, SECONDS, "job of a drain")
    for name in ("reserving", "blocked"):
        assert books.plane.request("PATCH", f"{DRAINS}/{name}", {"spec": {"confirmState": "Aborted"}})[0] == 200


def jobs(books: Audited) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = books.plane.request("GET", JOBS)[1]["items"]
    return found


def reservation_of(books: Audited, job: str) -> str:
    spec = books.plane.request("GET", f"{JOBS}/{job}")[1].get("spec", {})
    return str(spec.get("reservationOptions", {}).get("reservationRef", {}).get("name", ""))


def reservation_of_drain(books: Audited) -> bool:
    found = books.plane.request("GET", RESERVATIONS)[1]["items"]
    return any(each["metadata"]["name"].startswith("reserving-") for each in found)


def used(books: Audited) -> set[Right]:
    """The kinds of others that have a scale count as the one right that is for all of them."""
    return {SCALE if right[2].endswith("/scale") else right for right in books.used()}


def test_every_right_is_used_and_none_is_missing(books: Audited, tmp_path: Path) -> None:
    prepare(books.plane)
    books.install()
    give_it_nodes_and_pods(books)
    with descheduler(books, tmp_path) as process:
        give_it_jobs(books)
        give_it_drains(books)
        give_up(books)
        expected = {right for right in books.granted() if right[0] != "watch"}
        until_nothing_is_left(lambda: expected - used(books), SECONDS, process, tmp_path / "descheduler.log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert books.refused() == []
    assert used(books) == books.granted()
