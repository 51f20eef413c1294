"""The API server fails for gangs and Reservations: each ends as a whole, says why, and delays no other."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from koordinator.api.kinds import POD_GROUPS, RESERVATIONS
from koordinator.scheduler.binding.binder import DEADLINE
from koordinator.scheduler.plugins.reservation.reserve_pod import is_available
from tests.real_world.faulty_api_server import FAULTS, Rule, bindings
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, pod_group
from tests.scheduler.plugins.coscheduling.test_plugin import gang_profile
from tests.scheduler.plugins.reservation.test_node_faults import pending
from tests.scheduler.plugins.reservation.test_waking import profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

NAMES = ["etcd or a webhook fails", "the server asks for an hour", "there is never an answer"]
GANGS, MEMBERS = 20, 4


def large(*rules: Rule) -> SchedulerApi:
    api = SchedulerApi()
    for name in "ab":
        api.store(make_node(name, cpu="200", memory="400Gi", pods="500"))
    api.faults.rules += rules
    return api


def store_gang(api: SchedulerApi, name: str) -> None:
    api.store(pod_group(name, MEMBERS), POD_GROUPS)
    for number in range(MEMBERS):
        api.store(labelled(name, number))


@pytest.mark.parametrize("name", NAMES)
def test_gangs_are_bound_beside_those_whose_bindings_fail(name: str) -> None:
    """Of each of those, one member's binding fails."""
    rule = bindings(FAULTS[name], "poisoned*-0")

    async def story(fixture: RunningScheduler) -> None:
        for number in range(GANGS):
            store_gang(fixture.api, f"poisoned{number}")
        await fixture.until_idle(2)
        store_gang(fixture.api, "good")
        await fixture.until_idle(10)
        assert len([pod for pod in fixture.api.placed() if pod.startswith("good")]) == MEMBERS
        fixture.api.faults.rules.clear()
        await fixture.until_idle(DEADLINE + 15)
        assert len(fixture.api.placed()) == (GANGS + 1) * MEMBERS

    simulate(story, partial(large, rule), gang_profile)


@pytest.mark.parametrize("name", NAMES)
def test_the_status_of_gangs_is_written_beside_those_that_are_refused(name: str) -> None:
    rule = Rule(FAULTS[name], "patch", "podgroups", name="poisoned*")

    async def story(fixture: RunningScheduler) -> None:
        for number in range(GANGS):
            store_gang(fixture.api, f"poisoned{number}")
        await fixture.until_idle(2)
        store_gang(fixture.api, "good")
        await fixture.until_idle(6)
        assert fixture.api.document(POD_GROUPS, "good", "default")["status"]["phase"] == "Scheduled"

    simulate(story, partial(large, rule), gang_profile)


@pytest.mark.parametrize("name", NAMES)
def test_reservations_get_their_nodes_beside_those_that_fail(name: str) -> None:
    rule = Rule(FAULTS[name], "patch", "reservations", "status", name="poisoned*")

    async def story(fixture: RunningScheduler) -> None:
        for number in range(40):
            fixture.api.store(replace(pending(), metadata=meta(f"poisoned{number}")), RESERVATIONS)
        await fixture.until_idle(2)
        fixture.api.store(replace(pending(), metadata=meta("good")), RESERVATIONS)
        fixture.api.store(make_pod("pod"))
        await fixture.until_idle(12)
        assert is_available(fixture.api.objects("reservations")["good"])
        assert "pod" in fixture.api.placed()
        fixture.api.faults.rules.clear()
        await fixture.until_idle(90)
        assert all(is_available(each) for each in fixture.api.objects("reservations").values())

    simulate(story, partial(large, rule), profile)


@pytest.mark.parametrize("name", ["the answer is lost", "the server gives up too early"])
def test_a_reservation_whose_answer_is_lost_has_its_node_all_the_same(name: str) -> None:
    rule = Rule(FAULTS[name], "patch", "reservations", "status", times=1)

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pending(), RESERVATIONS)
        await fixture.until_idle(5)
        assert is_available(fixture.api.objects("reservations")["r"])

    fixture = simulate(story, partial(large, rule), profile)
    assert not [note for note in fixture.events.notes if note[1] == "FailedScheduling"]


def meta(name: str) -> object:
    return replace(pending().metadata, name=name, uid=f"uid-{name}")
