"""Single jobs, step by step: what is written, what is told, and how each of them ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS, RESERVATIONS
from koordinator.api.modification import DONE, EVICTED, FAILED, MOVED
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.evictors import EvictionRefusedError
from koordinator.kube.errors import ApiStatusError
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import Crash, SimulatedCluster


class Bench:
    """A cluster with pods web-a and web-b of one Deployment, and a controller."""

    def __init__(self, **args: Any) -> None:
        self.cluster = SimulatedCluster()
        scene.deployment(self.cluster)
        self.pod = scene.pod(self.cluster, "web-a")
        scene.pod(self.cluster, "web-b")
        self.plugin = self.cluster.start(convert(args, MigrationControllerArgs))

    def reconcile(self, name: str = "job") -> float | None:
        self.cluster.deliver()
        return asyncio.run(self.plugin.controller.reconcile(name))

    def advance(self, seconds: float) -> None:
        asyncio.run(self.cluster.clock.advance(seconds))

    @property
    def at(self) -> tuple[str, str, str]:
        """Phase, status and reason."""
        status = self.cluster.status()
        return status.get("phase", ""), status.get("status", ""), status.get("reason", "")

    @property
    def reservation(self) -> str:
        return next(iter(self.cluster.reservations()))["metadata"]["name"]  # type: ignore[no-any-return]

    def reported(self) -> list[str]:
        """The reasons of the events on the job, in order."""
        return [each.reason for each in self.cluster.recorded.events if each.regarding.kind == "PodMigrationJob"]

    def evict_after_scheduling(self) -> None:
        self.reconcile()
        scene.schedule(self.cluster, self.reservation)
        self.reconcile()


def test_a_migration_goes_through_all_steps() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    seen = []
    assert bench.reconcile() == 3.0
    seen.append(bench.at)
    scene.schedule(bench.cluster, bench.reservation)
    bench.reconcile()
    seen.append(bench.at)
    bench.cluster.remove(PODS, "default/web-a")
    bench.reconcile()
    seen.append(bench.at)
    bound = scene.pod(bench.cluster, "web-c", "node-2")
    bench.cluster.change(PODS, "default/web-c", conditions=[scene.NOT_READY])
    scene.bind(bench.cluster, bench.reservation, bound)
    bench.reconcile()
    seen.append(bench.at)
    bench.cluster.change(PODS, "default/web-c", conditions=[scene.READY])
    assert bench.reconcile() is None
    seen.append(bench.at)
    assert seen == [
        ("Running", "ReservationCreated", ""),
        ("Running", "Eviction", "Evicting"),
        ("Running", "PodBoundReservation", "WaitForPodBindReservation"),
        ("Running", "BoundPodReady", "WaitForBoundPodReady"),
        ("Succeeded", "Complete", ""),
    ]
    assert bench.reported() == [
        "ReservationCreated",
        "ReservationScheduled",
        "Evicting",
        "EvictComplete",
        "WaitForPodBindReservation",
        "PodBoundReservation",
        "WaitForBoundPodReady",
        "BoundPodReady",
        "Complete",
    ]
    status = bench.cluster.status()
    assert (status["nodeName"], status["podRef"]["name"]) == ("node-2", "web-c")
    assert status["message"] == f'Bind Pod "default/web-c" in Reservation "{bench.reservation}"'
    evicted, moved = bench.cluster.recorded.records
    assert (evicted.action, evicted.actor, evicted.node) == (EVICTED, "PodMigrationJob/job", "node-1")
    assert (moved.action, moved.outcome, moved.node) == (MOVED, DONE, "node-2")
    assert (moved.target, moved.pods) == ("default/web-c", ["default/web-c"])


def test_a_job_that_fails_is_recorded_once_with_the_reason() -> None:
    bench = Bench()
    scene.job(bench.cluster, "gone")
    bench.reconcile()
    bench.reconcile()
    (record,) = bench.cluster.recorded.records
    assert (record.action, record.outcome, record.cause.code) == (MOVED, FAILED, "MissingPod")


def test_the_replacement_of_a_pod_that_requests_nothing_is_not_waited_for() -> None:
    """It uses no Reservation: there is nothing in it to use."""
    bench = Bench()
    scene.pod(bench.cluster, "web-a")
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    scene.schedule(bench.cluster, bench.reservation, cpu="")
    bench.reconcile()
    bench.cluster.remove(PODS, "default/web-a")
    bench.reconcile()
    assert bench.at == ("Succeeded", "Complete", "")
    assert list(bench.cluster.reservations()) == []


def test_a_reservation_keeps_off_the_node_and_belongs_to_the_controller() -> None:
    bench = Bench()
    job = scene.job(bench.cluster, "web-a")
    bench.reconcile()
    made = next(bench.cluster.reservations())
    assert made["metadata"]["name"] == job["metadata"]["uid"]
    assert made["metadata"]["labels"]["app.kubernetes.io/created-by"] == "koord-descheduler"
    assert made["spec"]["owners"] == [{"controller": {**scene.OWNER, "namespace": "default"}}]
    assert (made["spec"]["ttl"], made["spec"]["allocateOnce"]) == ("5m0s", True)
    terms = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]}]
    assert "nodeName" not in made["spec"]["template"]["spec"]


def test_a_reservation_goes_with_its_job_whoever_deletes_it() -> None:
    bench = Bench()
    job = scene.job(bench.cluster, "web-a", reservationOptions={"template": {"metadata": {"name": "chosen"}}})
    bench.reconcile()
    made = next(bench.cluster.reservations())
    assert made["metadata"]["name"] == "chosen"
    owner = {"kind": "PodMigrationJob", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    assert made["metadata"]["ownerReferences"] == [{"apiVersion": "scheduling.koordinator.sh/v1alpha1", **owner}]


def test_an_unschedulable_reservation_fails_the_job_and_leaves_the_pod() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    scene.find_no_node(bench.cluster, bench.reservation)
    bench.reconcile()
    assert bench.at == ("Failed", "ReservationScheduled", "Unschedulable")
    assert bench.cluster.status()["message"] == "0/3 nodes are available"
    assert not bench.cluster.evicted
    assert not list(bench.cluster.reservations())


def test_a_disruption_budget_is_waited_for_until_the_time_is_over() -> None:
    bench = Bench()
    bench.cluster.disruptions_allowed = 0
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    scene.schedule(bench.cluster, bench.reservation)
    for _ in range(2):
        with pytest.raises(EvictionRefusedError, match="disruption budget"):
            bench.reconcile()
        bench.advance(1)
    assert bench.at == ("Running", "ReservationScheduled", "")
    bench.advance(300)
    bench.reconcile()
    assert bench.at == ("Failed", "ReservationScheduled", "Timeout")
    assert not list(bench.cluster.reservations())
    assert not bench.cluster.evicted


def test_a_refused_eviction_is_told_of() -> None:
    bench = Bench()
    bench.cluster.disruptions_allowed = 0
    scene.job(bench.cluster, "web-a", mode="EvictDirectly")
    with pytest.raises(EvictionRefusedError):
        bench.reconcile()
    note = (
        'Failed evict Pod "default/web-a" caused by Cannot evict pod as it would violate the pod\'s disruption budget.'
    )
    (event,) = bench.cluster.recorded.events
    assert (event.regarding.kind, *event[1:]) == ("PodMigrationJob", "Warning", "Evicting", note)


def test_a_pod_is_evicted_directly() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a", mode="EvictDirectly")
    assert bench.reconcile() == 3.0
    assert bench.at == ("Running", "Eviction", "Evicting")
    bench.cluster.remove(PODS, "default/web-a")
    bench.reconcile()
    assert bench.at == ("Succeeded", "Complete", "")
    assert bench.cluster.status()["message"] == 'Pod "default/web-a" has been evicted'
    assert bench.cluster.evicted == [bench.pod["metadata"]["uid"]]
    moved = bench.cluster.recorded.records[-1]
    assert (moved.action, moved.node, moved.target, moved.pods) == (MOVED, "", "", [])


def test_the_successor_of_a_pod_is_not_evicted() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a", mode="EvictDirectly", podRef={**_reference("web-a"), "uid": "another"})
    bench.reconcile()
    assert bench.at == ("Failed", "", "MissingPod")
    assert not bench.cluster.evicted


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"podRef": {"name": "web-a"}}, "InvalidPodRef", "Abort job caused by invalid PodRef"),
        (
            {"podRef": {"namespace": "default", "name": "gone"}},
            "MissingPod",
            'Abort job caused by missing Pod "default/gone"',
        ),
        (
            {"reservationOptions": {"reservationRef": {"name": "mine"}}},
            "MissingReservation",
            'Abort job caused by missing Reservation "/mine"',
        ),
        (
            {"podRef": {"namespace": "default", "name": ".."}},
            "MissingPod",
            'Abort job caused by missing Pod "default/.."',
        ),
        (
            {"podRef": {"namespace": "..", "name": "web-a"}},
            "MissingPod",
            'Abort job caused by missing Pod "../web-a"',
        ),
        (
            {"reservationOptions": {"reservationRef": {"name": ".."}}},
            "MissingReservation",
            'Abort job caused by missing Reservation "/.."',
        ),
    ],
)
def test_a_job_that_refers_to_nothing_fails(spec: dict[str, Any], reason: str, message: str) -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a", **spec)
    bench.reconcile()
    assert (bench.cluster.status()["phase"], bench.cluster.status()["reason"]) == ("Failed", reason)
    assert bench.cluster.status()["message"] == message


def test_a_bare_pod_is_said_to_have_nobody_to_keep_room_for() -> None:
    bench = Bench()
    scene.pod(bench.cluster, "bare", ownerReferences=[])
    scene.job(bench.cluster, "bare")
    bench.reconcile()
    assert bench.at == ("Failed", "", "FailedCreateReservation")
    assert "EvictDirectly" in bench.cluster.status()["message"]


def test_a_reservation_on_the_same_node_forbids_the_migration() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    scene.schedule(bench.cluster, bench.reservation, "node-1")
    name = bench.reservation
    bench.reconcile()
    assert bench.at == ("Failed", "ReservationCreated", "ForbiddenMigratePod")
    expected = f'Scheduler assignes the Reservation "{name}" on the same node as the Pod'
    assert bench.cluster.status()["message"] == expected


def test_a_reservation_that_another_pod_uses_forbids_the_eviction() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    scene.schedule(bench.cluster, bench.reservation)
    scene.bind(bench.cluster, bench.reservation, scene.pod(bench.cluster, "web-c", "node-2"))
    bench.reconcile()
    assert bench.at == ("Failed", "ReservationScheduled", "ForbiddenMigratePod")
    assert bench.cluster.status()["message"] == "Reservation is already bound by another Pod"


def test_an_expired_reservation_fails_the_job() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    conditions = [{"type": "Ready", "status": "False", "reason": "Expired"}]
    bench.cluster.change(RESERVATIONS, bench.reservation, phase="Failed", conditions=conditions)
    bench.reconcile()
    assert bench.at == ("Failed", "ReservationCreated", "ReservationExpired")


def test_a_reservation_that_cannot_be_created_is_told_of_and_tried_again() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    refusal = ApiStatusError(422, "Invalid", "no such thing")
    bench.cluster.fault = lambda verb, path, done: refusal if "reservations" in path and not done else None
    with pytest.raises(ApiStatusError):
        bench.reconcile()
    assert bench.at == ("Running", "ReservationCreated", "FailedCreateReservation")
    assert bench.cluster.status()["message"] == "Failed to create Reservation caused by no such thing"
    bench.cluster.fault = lambda verb, path, done: None
    bench.reconcile()
    assert bench.at == ("Running", "ReservationCreated", "")


def test_a_reservation_that_is_refused_again_and_again_is_told_of_each_time() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    refusal = ApiStatusError(422, "Invalid", "no such thing")
    bench.cluster.fault = lambda verb, path, done: refusal if "reservations" in path and not done else None
    for _ in range(3):
        with pytest.raises(ApiStatusError):
            bench.reconcile()
    assert bench.reported() == ["FailedCreateReservation"] * 3


def test_a_reservation_of_a_user_is_put_in_order_and_not_deleted() -> None:
    bench = Bench()
    bench.cluster.put(RESERVATIONS, {"metadata": {"name": "mine"}, "spec": {"owners": [{"controller": scene.OWNER}]}})
    scene.job(bench.cluster, "web-a", reservationOptions={"reservationRef": {"name": "mine"}})
    bench.reconcile()
    assert "scheduling.koordinator.sh/reservation-order" in next(bench.cluster.reservations())["metadata"]["labels"]
    scene.find_no_node(bench.cluster, "mine")
    bench.reconcile()
    assert bench.at[0] == "Failed"
    assert list(bench.cluster.reservations())


def test_a_pending_pod_is_not_evicted_but_gets_the_reservation() -> None:
    bench = Bench()
    waiting = scene.pod(bench.cluster, "waiting", "")
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    bench.cluster.change(PODS, "default/waiting", phase="Pending", conditions=[unscheduled])
    scene.job(bench.cluster, "waiting")
    bench.reconcile()
    made = next(bench.cluster.reservations())
    assert made["spec"]["owners"][0]["object"]["uid"] == waiting["metadata"]["uid"]
    scene.schedule(bench.cluster, bench.reservation)
    assert bench.reconcile() == 3.0
    assert bench.at == ("Running", "PodScheduled", "Unschedulable")
    bench.cluster.change(PODS, "default/waiting", conditions=[{"type": "PodScheduled", "status": "True"}])
    bench.reconcile()
    assert bench.at == ("Succeeded", "Complete", "")
    assert not bench.cluster.evicted


def test_nothing_is_done_for_a_paused_job() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a", paused=True)
    bench.advance(1000)
    assert bench.reconcile() is None
    assert bench.at == ("", "", "")


def test_nothing_is_done_before_arbitration_but_the_time_runs() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a", passed=False)
    assert bench.reconcile() == 300.0
    assert bench.at == ("", "", "")
    bench.advance(300)
    bench.reconcile()
    assert bench.at == ("Failed", "", "Timeout")


def test_an_aborted_job_gives_its_reservation_up() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    bench.cluster.change(POD_MIGRATION_JOBS, "job", phase="Aborted")
    bench.reconcile()
    assert bench.at[0] == "Aborted"
    assert not list(bench.cluster.reservations())


def test_an_eviction_that_came_to_nothing_is_repeated_after_the_grace_period() -> None:
    bench = Bench(evictionPolicy="Delete")
    scene.job(bench.cluster, "web-a", mode="EvictDirectly", ttl="1h")
    bench.reconcile()
    alive = scene.pod(bench.cluster, "web-a", uid=bench.pod["metadata"]["uid"])
    assert alive["metadata"]["uid"] == bench.cluster.evicted[0]
    bench.advance(59)
    assert bench.reconcile() == 3.0
    assert len(bench.cluster.evicted) == 1
    bench.advance(1)
    bench.reconcile()
    assert len(bench.cluster.evicted) == 2


def test_a_soft_eviction_is_an_annotation() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a", mode="EvictDirectly", deleteOptions={"gracePeriodSeconds": 7})
    labels = {"app": "web", "koordinator.sh/evict-policy": "SoftEviction"}
    scene.pod(bench.cluster, "web-a", labels=labels, uid=bench.pod["metadata"]["uid"])
    bench.reconcile()
    found = bench.cluster.get_document(PODS, "default/web-a")
    assert found is not None
    value = found["metadata"]["annotations"]["scheduling.koordinator.sh/soft-eviction"]
    assert msgspec.json.decode(value) == {
        "timestamp": "2026-01-01T00:00:00Z",
        "deleteOptions": {"gracePeriodSeconds": 7},
        "reason": "NotSet",
    }
    assert not bench.cluster.evicted
    assert bench.at == ("Running", "Eviction", "Evicting")


def test_evictions_are_limited_by_rate() -> None:
    bench = Bench(objectLimiters={"workload": {"duration": "0s"}})
    for name in ("web-a", "web-b"):
        scene.job(bench.cluster, name, name, mode="EvictDirectly")
    bench.reconcile("web-a")
    with pytest.raises(EvictionRefusedError, match="TooManyEvictions"):
        bench.reconcile("web-b")
    bench.advance(0.1)
    bench.reconcile("web-b")
    assert len(bench.cluster.evicted) == 2


def test_the_next_eviction_of_a_workload_waits() -> None:
    bench = Bench()
    for name in ("web-a", "web-b"):
        scene.job(bench.cluster, name, name, mode="EvictDirectly", ttl="1h")
    bench.reconcile("web-a")
    bench.advance(299)
    assert bench.reconcile("web-b") == 3.0
    bench.advance(1)
    bench.reconcile("web-b")
    assert len(bench.cluster.evicted) == 2


def test_a_deleted_job_takes_its_reservation_along() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    bench.cluster.deliver()
    bench.cluster.remove(POD_MIGRATION_JOBS, "job")

    async def work() -> None:
        working = asyncio.ensure_future(bench.plugin.controller.run())
        await asyncio.sleep(0)
        bench.cluster.deliver()
        for _ in range(50):
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(work())
    assert not list(bench.cluster.reservations())


def test_a_stale_decision_is_taken_anew() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.cluster.deliver()
    bench.cluster.change(POD_MIGRATION_JOBS, "job", phase="Aborted")
    asyncio.run(bench.plugin.controller.reconcile("job"))
    assert bench.at == ("Aborted", "", "")
    assert not list(bench.cluster.reservations())


def test_a_job_that_is_deleted_while_it_is_carried_out_is_let_go() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.cluster.deliver()
    bench.cluster.remove(POD_MIGRATION_JOBS, "job")
    assert asyncio.run(bench.plugin.controller.reconcile("job")) is None
    assert not bench.cluster.writes


def _reference(name: str) -> dict[str, str]:
    return {"namespace": "default", "name": name}


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"metadata": "mine"}, "metadata"),
        ({"metadata": {"name": 5}}, "metadata.name"),
        ({"metadata": {"labels": []}}, "metadata.labels"),
        ({"spec": []}, "spec"),
        ({"spec": {"template": "pod"}}, "spec.template"),
        ({"spec": {"template": {"spec": 1}}}, "spec.template.spec"),
        ({"spec": {"template": {"spec": {"affinity": "none"}}}}, "spec.template.spec.affinity"),
    ],
)
def test_a_template_of_another_shape_fails_the_job_and_names_the_field(template: Any, field: str) -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a", reservationOptions={"template": template})
    bench.reconcile()
    assert bench.at == ("Failed", "", "FailedCreateReservation")
    assert f"spec.reservationOptions.template.{field} is" in bench.cluster.status()["message"]


@pytest.mark.parametrize(
    "template", [{"metadata": None, "spec": None}, {"spec": {"template": {"spec": None}}}, {"metadata": {"name": None}}]
)
def test_nulls_in_a_template_are_what_is_absent(template: Any) -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a", reservationOptions={"template": template})
    bench.reconcile()
    assert bench.at == ("Running", "ReservationCreated", "")


def test_a_grace_period_beyond_all_time_is_waited_for() -> None:
    bench = Bench()
    bench.pod["spec"]["terminationGracePeriodSeconds"] = 2**63 - 1
    bench.cluster.put(PODS, bench.pod)
    scene.job(bench.cluster, "web-a")
    bench.evict_after_scheduling()
    bench.reconcile()
    bench.advance(100)
    assert bench.reconcile() is not None
    assert len(bench.cluster.evicted) == 1


def test_a_timeout_after_the_eviction_keeps_the_place_of_the_replacement() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.evict_after_scheduling()
    bench.cluster.remove(PODS, "default/web-a")
    bench.reconcile()
    bench.advance(300)
    bench.reconcile()
    assert bench.at[::2] == ("Failed", "Timeout")
    assert bench.cluster.evicted
    assert len(list(bench.cluster.reservations())) == 1


def test_a_timeout_before_the_eviction_has_been_noted_keeps_it_too() -> None:
    """The program ended between the eviction and its condition."""
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.reconcile()
    scene.schedule(bench.cluster, bench.reservation)

    def fail(verb: str, path: str, done: bool) -> Exception | None:
        return Crash() if done and path.endswith("/eviction") else None

    bench.cluster.fault = fail
    with pytest.raises(Crash):
        bench.reconcile()
    bench.cluster.fault = lambda verb, path, done: None
    bench.cluster.remove(PODS, "default/web-a")
    bench.advance(300)
    bench.reconcile()
    assert bench.at[::2] == ("Failed", "Timeout")
    assert len(list(bench.cluster.reservations())) == 1


def test_a_reservation_that_has_ended_goes_with_its_job_whenever_that_failed() -> None:
    bench = Bench()
    scene.job(bench.cluster, "web-a")
    bench.evict_after_scheduling()
    bench.advance(300)
    bench.reconcile()
    bench.cluster.change(RESERVATIONS, bench.reservation, phase="Failed")
    bench.reconcile()
    assert not list(bench.cluster.reservations())


def test_a_clock_that_was_set_back_stops_no_eviction() -> None:
    """An eviction that came to nothing is repeated, and the limits of workloads fill up again."""
    bench = Bench(objectLimiters={"workload": {"duration": "100s", "maxMigrating": 1}})
    scene.job(bench.cluster, "web-a", mode="EvictDirectly", ttl="24h")
    bench.reconcile()
    assert len(bench.cluster.evicted) == 1
    bench.cluster.clock.set_wall(bench.cluster.clock.now() - timedelta(hours=2))
    bench.advance(200)
    scene.job(bench.cluster, "web-b", "next", mode="EvictDirectly", ttl="24h")
    bench.reconcile("next")
    assert len(bench.cluster.evicted) == 2
