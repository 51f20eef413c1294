"""The phases of a PodGroup, from its members."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from koordinator.api.kinds import POD_GROUPS, PODS
from koordinator.api.pod import Pod, PodSpec, PodStatus
from koordinator.api.pod_group import PodGroup, PodGroupStatus
from koordinator.model.gang_declaration import gang_id_of
from koordinator.scheduler.engine.pod_info import finished_pod_as_seen
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.controllers import next_status, observed_status
from koordinator.scheduler.plugins.coscheduling.gang import Gang
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from tests.scheduler.fakes import make_profile
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, pod_group
from tests.scheduler.plugins.coscheduling.test_plugin import gang_profile, nodes
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def in_phase(pod: Pod, phase: str) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase))


def after(before: PodGroupStatus, *pods: str, minimum: int = 2) -> PodGroupStatus:
    """The status that follows; of each pod its phase, that of a pod without a node being empty."""
    found: PodGroup = msgspec.structs.replace(pod_group("g", minimum), status=before)
    return next_status(found, gang_with(found, *pods), NOW, {})


def gang_with(found: PodGroup, *pods: str) -> Gang:
    cache = GangCache()
    cache.set_pod_group(found)
    for number, phase in enumerate(pods):
        cache.set_pod(in_phase(labelled("g", number), phase), "node" if phase else "")
    return cache.gangs["default/g"]


@pytest.mark.parametrize(
    ("before", "pods", "phase"),
    [
        ("", ("",), "Pending"),
        ("Pending", ("",), "Pending"),
        ("Pending", ("", ""), "PreScheduling"),
        ("PreScheduling", ("", ""), "Scheduling"),
        ("PreScheduling", ("Pending", "Pending"), "Scheduled"),
        ("Scheduled", ("Running", "Pending"), "Scheduled"),
        ("Scheduled", ("Running", "Running"), "Running"),
        ("Running", ("Running", "Failed"), "Failed"),
        ("Running", ("Succeeded", "Succeeded"), "Finished"),
        ("Running", ("Running", ""), "Scheduling"),
        ("Running", (), "Pending"),
        ("Finished", ("", ""), "Finished"),
        ("Failed", ("", ""), "Failed"),
    ],
)
def test_the_next_phase(before: str, pods: tuple[str, ...], phase: str) -> None:
    assert after(PodGroupStatus(phase=before), *pods).phase == phase


def observed(*pods: str) -> PodGroupStatus:
    found = pod_group("g", 2)
    return observed_status(found, gang_with(found, *pods), NOW, {})


@pytest.mark.parametrize(
    ("pods", "phase"),
    [((), "Pending"), (("",), "Pending"), (("", ""), "Scheduling"), (("Running", "Running"), "Running")],
)
def test_phases_that_would_be_left_at_once_are_passed_over(pods: tuple[str, ...], phase: str) -> None:
    assert observed(*pods).phase == phase


def test_a_group_that_is_being_scheduled_says_since_when() -> None:
    assert after(PodGroupStatus(phase="PreScheduling"), "", "").schedule_start_time == NOW


def test_members_are_counted() -> None:
    found = after(PodGroupStatus(phase="Scheduled"), "Running", "Running", "Pending", "")
    assert (found.scheduled, found.running, found.succeeded, found.failed) == (3, 2, 0, 0)


# With a scheduler: pods that have finished are in nobody's cluster state.


def bound_in_phase(number: int, phase: str, **spec: Any) -> Pod:
    pod = in_phase(labelled("g", number), phase)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n0", **spec))


def with_group(*phases: str, minimum: int = 2) -> Callable[[], SchedulerApi]:
    """A PodGroup, and a pod on a node in each phase."""

    def made() -> SchedulerApi:
        api = nodes(4)
        api.store(pod_group("g", minimum), POD_GROUPS)
        for number, phase in enumerate(phases):
            api.store(bound_in_phase(number, phase))
        return api

    return made


def written(fixture: RunningScheduler) -> tuple[str, int, int, int, int]:
    """The status of the PodGroup: its phase, how many are scheduled, run, have succeeded, have failed."""
    status = fixture.api.document(POD_GROUPS, "g", "default").get("status", {})
    counts = (status.get(name, 0) for name in ("scheduled", "running", "succeeded", "failed"))
    return (status.get("phase", ""), *counts)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (("Succeeded", "Succeeded"), ("Finished", 2, 0, 2, 0)),
        (("Succeeded", "Running"), ("Running", 2, 1, 1, 0)),
        (("Failed", "Running"), ("Failed", 2, 1, 0, 1)),
        (("Failed", "Failed"), ("Failed", 2, 0, 0, 2)),
    ],
)
def test_members_that_finish_are_counted(ending: tuple[str, ...], expected: tuple[str, int, int, int, int]) -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(3)
        assert written(fixture) == ("Running", 2, 2, 0, 0)
        for number, phase in enumerate(ending):
            fixture.api.store(bound_in_phase(number, phase))
        await fixture.until_idle(3)
        assert written(fixture) == expected

    simulate(story, with_group("Running", "Running"), gang_profile)


def test_a_group_that_finishes_while_nobody_schedules_is_found_finished() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(3)
        assert written(fixture) == ("Finished", 2, 0, 2, 0)

    simulate(story, with_group("Succeeded", "Succeeded"), gang_profile)


def test_members_that_have_finished_do_not_count_for_what_is_placed() -> None:
    """The gang needs two that run together; who has finished is no partner."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(labelled("g", 1))
        await fixture.until_idle(12)
        assert set(fixture.api.placed()) == {"g-0"}

    simulate(story, with_group("Succeeded"), gang_profile)


def test_a_finished_member_that_is_deleted_counts_no_more() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(3)
        assert written(fixture) == ("Running", 2, 1, 1, 0)
        fixture.api.drop("pods", "default/g-1")
        await fixture.until_idle(3)
        assert written(fixture) == ("Scheduling", 1, 1, 0, 0)

    simulate(story, with_group("Running", "Succeeded"), gang_profile)


def test_what_has_finished_outside_of_gangs_is_kept_by_its_name_alone() -> None:
    pod = bound_in_phase(0, "Succeeded")
    outside = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels={"app": "web"}))
    kept = finished_pod_as_seen(outside, lambda pod: bool(gang_id_of(pod)))
    assert (kept.metadata.labels, kept.spec, kept.status) == ({}, PodSpec(), PodStatus())
    kept = finished_pod_as_seen(pod, lambda pod: bool(gang_id_of(pod)))
    assert (kept.metadata.labels, kept.spec.node_name, kept.status.phase) == (pod.metadata.labels, "n0", "Succeeded")
    assert not kept.spec.containers


@pytest.mark.parametrize(("profile", "watches"), [(make_profile, 1), (gang_profile, 2)])
def test_only_where_gangs_are_scheduled_are_finished_pods_watched(
    profile: Callable[[ClusterView], Profile], watches: int
) -> None:
    informers = RunningScheduler(SchedulerApi(), profile).scheduler.informers
    assert sum(informer.kind is PODS for informer in informers) == watches


def test_members_that_begin_to_run_are_counted_although_nothing_else_happens() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(3)
        assert written(fixture) == ("Scheduled", 2, 0, 0, 0)
        await fixture.until_idle(3)
        for number in range(2):
            fixture.api.store(bound_in_phase(number, "Running"))
        await fixture.until_idle(3)
        assert written(fixture) == ("Running", 2, 2, 0, 0)

    simulate(story, with_group("Pending", "Pending"), gang_profile)
