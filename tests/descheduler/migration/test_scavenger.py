"""Jobs that are over do not stay, nor do the Reservations that were made for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.kinds import POD_MIGRATION_JOBS, RESERVATIONS
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.kube.errors import ApiStatusError
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster


def scavenged_after(seconds: float, phase: str = "Succeeded", **spec: Any) -> SimulatedCluster:
    """A cluster with a job of that age, and its Reservation, after a pass."""
    cluster = SimulatedCluster()
    uid = scene.job(cluster, "web-a", **spec)["metadata"]["uid"]
    cluster.change(POD_MIGRATION_JOBS, "job", phase=phase)
    labels = {"app.kubernetes.io/created-by": "koord-descheduler"}
    cluster.put(RESERVATIONS, {"metadata": {"name": uid, "labels": labels}, "spec": {}})
    plugin = cluster.start()
    asyncio.run(cluster.clock.advance(seconds))
    asyncio.run(plugin.scavenger.scavenge())
    return cluster


@pytest.mark.parametrize(
    ("seconds", "spec", "is_left"),
    [
        (599, {}, True),
        (600, {}, False),
        (1799, {"ttl": None}, True),
        (1800, {"ttl": None}, False),
    ],
)
def test_a_job_stays_five_minutes_after_its_time(seconds: float, spec: dict[str, Any], is_left: bool) -> None:
    cluster = scavenged_after(seconds, **spec)
    assert bool(cluster.documents(POD_MIGRATION_JOBS)) is is_left
    assert bool(list(cluster.reservations())) is is_left


def test_a_job_that_ended_late_stays_five_minutes_from_then_on() -> None:
    cluster = SimulatedCluster()
    scene.job(cluster, "web-a")
    condition = {"type": "Eviction", "status": "True", "lastTransitionTime": "2026-01-01T00:08:00Z"}
    cluster.change(POD_MIGRATION_JOBS, "job", phase="Succeeded", conditions=[condition])
    plugin = cluster.start()
    asyncio.run(cluster.clock.advance(779))
    asyncio.run(plugin.scavenger.scavenge())
    assert cluster.documents(POD_MIGRATION_JOBS)
    asyncio.run(cluster.clock.advance(1))
    asyncio.run(plugin.scavenger.scavenge())
    assert not cluster.documents(POD_MIGRATION_JOBS)


@pytest.mark.parametrize(
    ("condition", "controller", "seconds", "is_left"),
    [
        ("Eviction", "uid-web-1", 7199, True),
        ("Eviction", "uid-web-1", 7200, False),
        ("ReservationCreated", "uid-web-1", 600, False),
        ("Eviction", "", 600, False),
    ],
)
def test_a_job_that_evicted_a_pod_stays_for_the_cool_down(
    condition: str, controller: str, seconds: float, is_left: bool
) -> None:
    cluster = SimulatedCluster()
    job = scene.job(cluster, "web-a")
    job["metadata"]["annotations"]["descheduler.koordinator.sh/evicted-pod-controller"] = controller
    cluster.put(POD_MIGRATION_JOBS, job)
    cluster.change(POD_MIGRATION_JOBS, "job", phase="Succeeded", conditions=[{"type": condition, "status": "True"}])
    plugin = cluster.start(convert({"coolDown": "2h"}, MigrationControllerArgs))
    asyncio.run(cluster.clock.advance(seconds))
    asyncio.run(plugin.scavenger.scavenge())
    assert bool(cluster.documents(POD_MIGRATION_JOBS)) is is_left


def test_one_job_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    cluster = SimulatedCluster()
    for name in ("a", "b", "c"):
        scene.job(cluster, "web", name)
    plugin = cluster.start()
    asyncio.run(cluster.clock.advance(3600))
    refusal = ApiStatusError(403, "Forbidden", "no")
    cluster.fault = lambda verb, path, done: refusal if path.endswith("/a") else None
    asyncio.run(plugin.scavenger.scavenge())
    assert list(cluster.documents(POD_MIGRATION_JOBS)) == ["a"]


def test_the_reservation_of_a_user_stays() -> None:
    cluster = SimulatedCluster()
    cluster.put(RESERVATIONS, {"metadata": {"name": "mine"}, "spec": {}})
    scene.job(cluster, "web-a", reservationOptions={"reservationRef": {"name": "mine"}})
    plugin = cluster.start()
    asyncio.run(cluster.clock.advance(3600))
    asyncio.run(plugin.scavenger.scavenge())
    assert [made["metadata"]["name"] for made in cluster.reservations()] == ["mine"]
    assert not cluster.documents(POD_MIGRATION_JOBS)


def left_by(uid: str, name: str = "room") -> Document:
    """A Reservation that was made for a job."""
    owner = {"apiVersion": POD_MIGRATION_JOBS.api_version, "kind": "PodMigrationJob", "name": "job", "uid": uid}
    labels = {"app.kubernetes.io/created-by": "koord-descheduler"}
    return {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": {}}


def test_a_job_that_was_deleted_while_nobody_led_leaves_no_reservation() -> None:
    cluster = SimulatedCluster()
    cluster.put(RESERVATIONS, left_by("gone"))
    asyncio.run(cluster.start().scavenger.scavenge())
    assert not list(cluster.reservations())


def test_a_job_that_has_the_name_of_the_deleted_one_does_not_keep_its_reservation() -> None:
    cluster = SimulatedCluster()
    scene.job(cluster, "web-a")
    cluster.put(RESERVATIONS, left_by("gone"))
    asyncio.run(cluster.start().scavenger.scavenge())
    assert not list(cluster.reservations())


def test_the_reservation_of_a_job_that_no_informer_has_seen_yet_stays() -> None:
    cluster = SimulatedCluster()
    cluster.put(RESERVATIONS, left_by("new"))
    plugin = cluster.start()
    cluster.put(POD_MIGRATION_JOBS, {"metadata": {"name": "job", "uid": "new"}, "spec": {}})
    asyncio.run(plugin.scavenger.scavenge())
    assert list(cluster.reservations())


def test_reservations_that_belong_to_no_job_stay() -> None:
    cluster = SimulatedCluster()
    orphaned = left_by("gone", "orphaned")
    del orphaned["metadata"]["ownerReferences"]
    drained = left_by("gone", "drained")
    drained["metadata"]["ownerReferences"][0]["kind"] = "DrainNode"
    foreign = left_by("gone", "foreign")
    del foreign["metadata"]["labels"]
    for document in (orphaned, drained, foreign):
        cluster.put(RESERVATIONS, document)
    asyncio.run(cluster.start().scavenger.scavenge())
    assert len(list(cluster.reservations())) == 3


def test_one_reservation_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    cluster = SimulatedCluster()
    for name in ("a", "b", "c"):
        cluster.put(RESERVATIONS, left_by("gone", name))
    plugin = cluster.start()
    refusal = ApiStatusError(403, "Forbidden", "no")
    cluster.fault = lambda verb, path, done: refusal if path.endswith("/a") else None
    asyncio.run(plugin.scavenger.scavenge())
    assert [made["metadata"]["name"] for made in cluster.reservations()] == ["a"]
