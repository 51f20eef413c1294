"""``koord explain migration``: how far a PodMigrationJob is, and what has to happen next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, POD_MIGRATION_JOBS, RESERVATIONS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.cli.explain_failure import EXPLAINED, NOT_THERE
from koordinator.cli.explain_migration import migration_document
from koordinator.cli.main import main
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

PASSED = {"descheduler.koordinator.sh/passed-arbitration": "true"}
PLACED = {"metadata": {"name": "r"}, "status": {"phase": "Available", "nodeName": "n2"}}


def condition(type_: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, str]:
    moment = "2026-03-01T12:00:00Z"
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}


def job(
    phase: str = "Running", *conditions: dict[str, str], spec: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    own = {"podRef": {"namespace": "shop", "name": "web"}, "mode": "ReservationFirst", "ttl": "5m0s", **(spec or {})}
    found = {"phase": phase, "conditions": list(conditions), **status}
    return {"metadata": {"name": "move-web", "annotations": PASSED}, "spec": own, "status": found}


RESERVED = (condition("ReservationCreated"), condition("ReservationScheduled"))


@pytest.mark.parametrize(
    ("found", "sentence", "following"),
    [
        ({**job(""), "metadata": {"name": "m"}}, "it waits for arbitration", "other migrations"),
        (job("Pending", spec={"paused": True}), "it is paused", "set spec.paused to false"),
        (job("Running"), "it has just begun", "koord-descheduler reserves room"),
        (job("Running", *RESERVED), "another node has room reserved for it", "koord-descheduler evicts the pod"),
        (
            job("Running", *RESERVED, condition("Eviction", "False", "Evicting", "Cannot evict pod: budget web")),
            "the pod is being evicted: Cannot evict pod: budget web",
            "a PodDisruptionBudget that refuses has to allow it",
        ),
        (
            job("Running", *RESERVED, condition("GangReady", "False", "WaitForGang", "waits until all can leave")),
            "the gang of the pod moves whole or not at all: waits until all can leave",
            "the jobs that have the same label descheduler.koordinator.sh/gang-migration get as far",
        ),
        (
            job("Running", *RESERVED, condition("Eviction", "True", "EvictComplete")),
            "the pod is evicted, and its replacement has not taken the Reservation yet",
            "the controller of the pod makes a replacement",
        ),
        (
            job("Running", *RESERVED, condition("Eviction"), condition("BoundPodReady", "False")),
            "the replacement is on its node and not ready yet",
            "the replacement becomes ready",
        ),
        (job("Succeeded", podRef={"name": "web-2"}), "the pod was moved", ""),
        (job("Succeeded"), "the pod was evicted", ""),
        (
            job("Failed", reason="Timeout", message="Abort job caused by timeout"),
            "it has ended without success: Abort job caused by timeout",
            "create another job",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_it_is_and_what_comes_next(found: dict[str, Any], sentence: str, following: str) -> None:
    document = migration_document(found, None, {"metadata": {}})
    assert document.sentence.startswith(sentence)
    assert document.next.startswith(following)
    assert bool(document.next) == bool(following)


def test_a_reservation_that_finds_no_node() -> None:
    waits = condition("ReservationScheduled", "False", "Unschedulable", "0/3 nodes are available")
    pending = {"metadata": {"name": "r"}, "status": {"phase": "Pending"}}
    document = migration_document(job("Running", condition("ReservationCreated"), waits), pending, None)
    assert document.sentence == "its Reservation waits for a node: 0/3 nodes are available"
    assert document.next == "koord explain reservation r says what is missing"


def test_a_pod_that_takes_its_time_to_end() -> None:
    leaving = {"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}}
    evicting = job("Running", *RESERVED, condition("Eviction", "False", "Evicting"))
    assert migration_document(evicting, PLACED, leaving).sentence == "the pod is terminating"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("explained")) as found:
        for definition in custom_resource_definitions():
            if definition["spec"]["names"]["kind"] in ("PodMigrationJob", "Reservation"):
                found.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        found.create(
            RESERVATIONS, {"metadata": {"name": "r"}, "spec": {"owners": [{"object": {"name": "o"}}], "template": {}}}
        )
        found.set_status(RESERVATIONS, "r", PLACED["status"])
        document = job(spec={"reservationOptions": {"reservationRef": {"name": "r"}}})
        found.create(POD_MIGRATION_JOBS, document)
        found.set_status(POD_MIGRATION_JOBS, "move-web", {"phase": "Running", "conditions": list(RESERVED)})
        for name in ("move-a", "move-b"):
            member = {**job(spec={"podRef": {"namespace": "shop", "name": name[-1]}}), "metadata": {"name": name}}
            member["metadata"] |= {"labels": {"descheduler.koordinator.sh/gang-migration": "g"}, "annotations": PASSED}
            found.create(POD_MIGRATION_JOBS, member)
        waits = condition("GangReady", "False", "WaitForGang", "waits until all members of its gang can leave")
        found.set_status(POD_MIGRATION_JOBS, "move-a", {"phase": "Running", "conditions": [*RESERVED, waits]})
        found.set_status(POD_MIGRATION_JOBS, "move-b", {"phase": "Running", "reason": "Unschedulable"})
        yield found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")


def test_for_a_person(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "pmj", "move-web", *cluster.arguments]) == EXPLAINED
    out = capsys.readouterr().out
    assert "move-web  Running: another node has room reserved for it" in out
    assert "Reservation r: Available on n2" in out
    assert [line for line in out.splitlines() if "ReservationScheduled" in line and "yes" in line]


def test_the_jobs_of_the_other_members_of_its_gang(
    cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "migration", "move-a", *cluster.arguments]) == EXPLAINED
    out = capsys.readouterr().out.replace("|", " ")
    assert "the gang of the pod moves whole or not at all: waits until all members of its gang can leave" in out
    assert [line for line in out.splitlines() if line.split()[:4] == ["move-b", "shop/b", "Running", "Unschedulable"]]


def test_a_job_that_is_not_there(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "migration", "none", *cluster.arguments]) == NOT_THERE
    assert "has no PodMigrationJob none" in capsys.readouterr().err
