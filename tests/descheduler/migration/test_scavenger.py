"""Jobs that are over do not stay, nor do the Reservations that were made for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.kinds import POD_MIGRATION_JOBS, RESERVATIONS
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
    assert bool(cluster.objects[POD_MIGRATION_JOBS.plural]) is is_left
    assert bool(list(cluster.reservations())) is is_left


def test_a_job_that_ended_late_stays_five_minutes_from_then_on() -> None:
    cluster = SimulatedCluster()
    scene.job(cluster, "web-a")
    condition = {"type": "Eviction", "status": "True", "lastTransitionTime": "2026-01-01T00:08:00Z"}
    cluster.change(POD_MIGRATION_JOBS, "job", phase="Succeeded", conditions=[condition])
    plugin = cluster.start()
    asyncio.run(cluster.clock.advance(779))
    asyncio.run(plugin.scavenger.scavenge())
    assert cluster.objects[POD_MIGRATION_JOBS.plural]
    asyncio.run(cluster.clock.advance(1))
    asyncio.run(plugin.scavenger.scavenge())
    assert not cluster.objects[POD_MIGRATION_JOBS.plural]


def test_one_job_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    cluster = SimulatedCluster()
    for name in ("a", "b", "c"):
        scene.job(cluster, "web", name)
    plugin = cluster.start()
    asyncio.run(cluster.clock.advance(3600))
    refusal = ApiStatusError(403, "Forbidden", "no")
    cluster.fault = lambda verb, path, done: refusal if path.endswith("/a") else None
    asyncio.run(plugin.scavenger.scavenge())
    assert list(cluster.objects[POD_MIGRATION_JOBS.plural]) == ["a"]


def test_the_reservation_of_a_user_stays() -> None:
    cluster = SimulatedCluster()
    cluster.put(RESERVATIONS, {"metadata": {"name": "mine"}, "spec": {}})
    scene.job(cluster, "web-a", reservationOptions={"reservationRef": {"name": "mine"}})
    plugin = cluster.start()
    asyncio.run(cluster.clock.advance(3600))
    asyncio.run(plugin.scavenger.scavenge())
    assert [made["metadata"]["name"] for made in cluster.reservations()] == ["mine"]
    assert not cluster.objects[POD_MIGRATION_JOBS.plural]
