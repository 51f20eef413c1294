"""The phases of a PodGroup, from its members."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup, PodGroupStatus
from koordinator.scheduler.plugins.coscheduling.gang import Gang
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from koordinator.scheduler.plugins.coscheduling.pod_group_status import next_status, settled_status
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, pod_group

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def in_phase(pod: Pod, phase: str) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase))


def after(before: PodGroupStatus, *pods: str, minimum: int = 2) -> PodGroupStatus:
    """The status that follows; of each pod its phase, that of a pod without a node being empty."""
    found: PodGroup = msgspec.structs.replace(pod_group("g", minimum), status=before)
    return next_status(found, gang_with(found, *pods), NOW)


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


def settled(*pods: str) -> PodGroupStatus:
    found = pod_group("g", 2)
    return settled_status(found, gang_with(found, *pods), NOW)


@pytest.mark.parametrize(
    ("pods", "phase"),
    [((), "Pending"), (("",), "Pending"), (("", ""), "Scheduling"), (("Running", "Running"), "Running")],
)
def test_phases_that_would_be_left_at_once_are_passed_over(pods: tuple[str, ...], phase: str) -> None:
    assert settled(*pods).phase == phase


def test_a_group_that_is_being_scheduled_says_since_when() -> None:
    assert after(PodGroupStatus(phase="PreScheduling"), "", "").schedule_start_time == NOW


def test_members_are_counted() -> None:
    found = after(PodGroupStatus(phase="Scheduled"), "Running", "Running", "Pending", "")
    assert (found.scheduled, found.running, found.succeeded, found.failed) == (3, 2, 0, 0)
