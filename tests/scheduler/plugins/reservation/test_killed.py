"""Reservations and their owners when the scheduler is killed at any of its writes: the next one finds nothing promised
twice."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import RESERVATION_AFFINITY, RESERVATION_ALLOCATED
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import PodTemplateSpec
from koordinator.api.reservation import RESTRICTED, Reservation, ReservationStatus
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_record
from tests.in_memory_api import NO_FAULT
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins.coscheduling.test_gang_faults import Killer, run_and_kill
from tests.scheduler.plugins.reservation.test_free_capacity import available, noted, owner
from tests.scheduler.plugins.reservation.test_waking import profile
from tests.scheduler.running_scheduler import RunningScheduler, check
from tests.scheduler.scheduler_api import SchedulerApi

HELD: Final = 3
"""CPUs of the Reservation."""
OWNERS: Final = 4
"""Each requests one CPU and the Reservation."""


def pending(*, once: bool) -> Reservation:
    found = available(policy=RESTRICTED, once=once)
    template = PodTemplateSpec(spec=make_pod("template", cpu=str(HELD), memory=f"{HELD}Gi").spec)
    return replace(found, spec=replace(found.spec, template=template), status=ReservationStatus())


def cluster(*, once: bool) -> SchedulerApi:
    """A node with two CPUs more than the Reservation requests, its owners, and pods of others for the rest."""
    api = SchedulerApi()
    api.store(make_node("a", cpu=str(HELD + 2)))
    api.store(pending(once=once), RESERVATIONS)
    for number in range(OWNERS):
        api.store(noted(owner(f"o{number}", cpu="1"), {RESERVATION_AFFINITY: "{}"}))
    for number in range(2):
        api.store(make_pod(f"p{number}", cpu="1"))
    return api


async def kill_and_go_on(killer: Killer, *, once: bool) -> SchedulerApi:
    api = cluster(once=once)
    first, second = RunningScheduler(api, profile), RunningScheduler(api, profile)
    api.fault = killer
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        await run_and_kill(first)
    api.fault = NO_FAULT
    async with second.running():
        await second.until_idle(12)
    check(second)
    return api


def owners(api: SchedulerApi) -> dict[str, str]:
    """Owner with a node -> the uid of the Reservation that it takes from."""
    pods = {name: api.pod(name) for name in api.placed() if name.startswith("o")}
    return {name: record.uid if (record := allocated_record(pod)) else "" for name, pod in pods.items()}


@pytest.mark.parametrize("step", range(1, 13))
def test_several_owners_get_all_of_it_and_no_more(step: int) -> None:
    """Of every second write nobody hears whether it was done, and it was."""
    api = asyncio.run(kill_and_go_on(Killer(step, is_done=step % 2 == 0), once=False))
    assert list(owners(api).values()) == ["uid-r"] * HELD
    assert len(api.placed()) == HELD + 2, "others have what is left"
    status = api.document(RESERVATIONS, "r")["status"]
    assert (status["phase"], status["allocated"]["cpu"], len(status["currentOwners"])) == ("Available", "3", HELD)


@pytest.mark.parametrize("step", range(1, 9))
def test_it_is_used_up_by_one_owner(step: int) -> None:
    api = asyncio.run(kill_and_go_on(Killer(step, is_done=True), once=True))
    assert list(owners(api).values()) == ["uid-r"]
    assert api.document(RESERVATIONS, "r")["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(("once", "least"), [(False, 12), (True, 8)])
def test_the_steps_are_all_writes_until_the_owners_have_their_nodes(once: bool, least: int) -> None:
    killer = Killer(99, is_done=True)
    api = asyncio.run(kill_and_go_on(killer, once=once))
    assert killer.writes >= least
    assert all(RESERVATION_ALLOCATED in api.pod(name).metadata.annotations for name in owners(api))
