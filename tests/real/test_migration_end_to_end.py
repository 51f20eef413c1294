"""A pod of a Deployment moves on a real API server by our programs alone: koord-manager admits, koord-scheduler places
the Reservation and the new pod, koord-descheduler moves. Kubernetes' controllers make the new pod."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from koordinator.api.document import Document
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import gates, install
from tests.real.manager_process import OURS, manager
from tests.real.migration_programs import (
    budget,
    cluster_of_moving_pods,
    created,
    deployment,
    descheduler,
    is_ready,
    items,
)
from tests.real.polling import until
from tests.real.programs import RealPrograms

_REPLICAS: Final = 3
_LEAST: Final = 2
_ARGS: Final = {"evictQPS": "100", "evictBurst": 100}
_JOBS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
_RESERVATIONS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
_PODS: Final = "/api/v1/namespaces/default/pods"
_SEQUENCE: Final = (
    "ReservationCreated",
    "ReservationScheduled",
    "Eviction",
    "PodBoundReservation",
    "ReservationBound",
    "BoundPodReady",
    "Complete",
)
_SECONDS: Final = 60.0


@dataclass
class Migration:
    """What was seen of it."""

    moved: Document
    """The pod as it was before."""
    job: Document = field(default_factory=dict)
    statuses: list[str] = field(default_factory=list)
    fewest_ready: int = _REPLICAS
    reserved: str = ""
    """The node of the Reservation."""
    pods: Sequence[Document] = ()
    """Those at the end."""

    @property
    def replacement(self) -> Document:
        name = self.job["status"]["podRef"]["name"]
        return next(pod for pod in self.pods if pod["metadata"]["name"] == name)


@contextmanager
def _cluster(programs: RealPrograms, folder: Path) -> Iterator[ControlPlane]:
    with cluster_of_moving_pods(programs, folder, our_scheduler=True) as plane:
        install(plane)
        with manager(OURS, plane.kubeconfig, folder / "manager", arguments=(gates(),)) as running:
            running.wait_ready()
            created(plane, "/apis/apps/v1/namespaces/default/deployments", deployment(_REPLICAS))
            created(plane, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget(minAvailable=_LEAST))
            until(lambda: sum(map(is_ready, items(plane, _PODS))) == _REPLICAS, 60, "pods")
            with descheduler(programs, plane.kubeconfig, folder, _ARGS, ours=True):
                yield plane


@pytest.fixture(scope="module")
def migration(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Migration:
    with _cluster(real_programs, tmp_path_factory.mktemp("migration")) as plane:
        seen = Migration(min(items(plane, _PODS), key=lambda pod: str(pod["metadata"]["name"])))
        created(plane, _JOBS, _job(seen.moved["metadata"]["name"]))
        deadline = time.monotonic() + _SECONDS
        while seen.job.get("status", {}).get("phase") not in ("Succeeded", "Failed", "Aborted"):
            assert time.monotonic() < deadline, (seen.statuses, seen.job)
            _look(plane, seen)
            time.sleep(0.01)
        return seen


def _look(plane: ControlPlane, seen: Migration) -> None:
    (seen.job,) = items(plane, _JOBS)
    status = seen.job.get("status", {}).get("status", "")
    if status and seen.statuses[-1:] != [status]:
        seen.statuses.append(status)
    seen.pods = items(plane, _PODS)
    staying = [pod for pod in seen.pods if "deletionTimestamp" not in pod["metadata"]]
    seen.fewest_ready = min(seen.fewest_ready, sum(map(is_ready, staying)))
    for reservation in items(plane, _RESERVATIONS):
        seen.reserved = reservation.get("status", {}).get("nodeName", "") or seen.reserved


def _job(pod: str) -> Document:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "move"},
        "spec": {"podRef": {"namespace": "default", "name": pod}, "mode": "ReservationFirst", "ttl": "50s"},
    }


def test_the_pod_ends_on_the_reserved_node(migration: Migration) -> None:
    assert migration.job["status"]["phase"] == "Succeeded", migration.job["status"]
    replacement = migration.replacement
    assert is_ready(replacement)
    assert replacement["spec"]["nodeName"] == migration.reserved == migration.job["status"]["nodeName"]
    assert migration.reserved != migration.moved["spec"]["nodeName"]
    assert migration.moved["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in migration.pods}


def test_the_statuses_come_in_their_order(migration: Migration) -> None:
    """Whoever reads a status now and then misses short steps; those that are seen come in order."""
    places = [_SEQUENCE.index(status) for status in migration.statuses]
    assert places == sorted(places)
    assert migration.statuses[-1] == "Complete"


def test_every_step_was_taken(migration: Migration) -> None:
    conditions = {each["type"]: each["status"] for each in migration.job["status"]["conditions"]}
    assert conditions == dict.fromkeys(_SEQUENCE[:-1], "True")


def test_the_budget_holds_all_the_time(migration: Migration) -> None:
    assert migration.fewest_ready >= _LEAST
