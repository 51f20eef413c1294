"""What a Reservation holds appears in its status soon, whatever becomes of the writes of others."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.kinds import RESERVATIONS
from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation, ReservationOwner
from koordinator.scheduler.plugins.reservation import controller
from koordinator.scheduler.plugins.reservation.controller import status_change
from tests.real_world.faulty_api_server import FAULTS, Fault, Rule
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins.reservation.test_node_faults import pending
from tests.scheduler.plugins.reservation.test_waking import profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

SOON = 0.5
POISONED = 40
STATUS = ("patch", "reservations", "status")


def large(*rules: Rule) -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a", cpu="400", memory="800Gi", pods="500"))
    api.faults.rules += rules
    return api


def shared(name: str) -> Reservation:
    """For several owners, which have its name as a label."""
    found = pending()
    owners = [ReservationOwner(label_selector=LabelSelector(match_labels={"own": name}))]
    return replace(
        found,
        metadata=replace(found.metadata, name=name, uid=f"uid-{name}"),
        spec=replace(found.spec, allocate_once=False, owners=owners),
    )


def owner(reservation: str, number: int = 0) -> Pod:
    return make_pod(f"{reservation}-{number}", cpu="1", labels={"own": reservation})


async def available(fixture: RunningScheduler, *names: str) -> None:
    """Have these Reservations on nodes, with all of their status written."""
    for name in names:
        fixture.api.store(shared(name), RESERVATIONS)
    await fixture.until_idle(5)


async def bound(fixture: RunningScheduler, *owners: Pod) -> None:
    for pod in owners:
        fixture.api.store(pod)
    await fixture.until_idle()
    assert {pod.metadata.name for pod in owners} <= fixture.api.placed().keys()


def users(fixture: RunningScheduler, name: str) -> list[str]:
    """As the status says."""
    return [each.name for each in fixture.api.objects("reservations")[name].status.current_owners]


def test_owners_that_come_and_go_appear_within_half_a_second() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await available(fixture, "r")
        # Not at the same time as the look at all Reservations of each second.
        await fixture.until_idle(0.1)
        await bound(fixture, owner("r"))
        await fixture.until_idle(SOON)
        assert users(fixture, "r") == ["r-0"]
        await fixture.until_idle(0.6)
        fixture.api.drop("pods", "default/r-0")
        await fixture.until_idle(SOON)
        assert users(fixture, "r") == []

    simulate(story, large, profile)


def test_owners_that_come_together_are_written_together() -> None:
    rule = Rule(Fault(), *STATUS)

    async def story(fixture: RunningScheduler) -> None:
        await available(fixture, "r")
        before = len(rule.hits)
        await bound(fixture, *[owner("r", number) for number in range(3)])
        await fixture.until_idle(3)
        assert users(fixture, "r") == ["r-0", "r-1", "r-2"]
        assert len(rule.hits) - before == 1

    simulate(story, partial(large, rule), profile)


def test_an_owner_that_comes_while_the_status_is_written_appears_soon_after_that() -> None:
    rule = Rule(Fault(delay=2.0), *STATUS)

    async def story(fixture: RunningScheduler) -> None:
        await available(fixture, "r")
        fixture.api.faults.rules.append(rule)
        await bound(fixture, owner("r"))
        await fixture.until_idle(0.4)
        assert rule.hits
        fixture.api.faults.rules.clear()
        await bound(fixture, owner("r", 1))
        await fixture.until_idle(1.5)
        assert users(fixture, "r") == []
        await fixture.until_idle(0.4 + SOON)
        assert users(fixture, "r") == ["r-0", "r-1"]

    simulate(story, large, profile)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.carried_out])
def test_those_that_are_refused_or_not_answered_delay_no_other(name: str) -> None:
    poisoned = [f"a-poisoned-{number:02}" for number in range(POISONED)]

    async def story(fixture: RunningScheduler) -> None:
        await available(fixture, "good", *poisoned)
        fixture.api.faults.rules.append(rule := Rule(FAULTS[name], *STATUS, name="a-poisoned*"))
        await bound(fixture, *map(owner, poisoned))
        await fixture.until_idle(3)
        assert set(rule.hits) == set(poisoned), "all of them are tried"
        await bound(fixture, owner("good"))
        await fixture.until_idle(SOON)
        assert users(fixture, "good") == ["good-0"]
        fixture.api.faults.rules.clear()
        await fixture.until_idle(120)
        assert [users(fixture, each) for each in poisoned] == [[f"{each}-0"] for each in poisoned]

    simulate(story, large, profile)


def test_a_standby_keeps_nothing_of_reservations_that_are_gone() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await available(fixture, "r")
        cache = fixture.scheduler.state.view.shared["Reservation"]
        await bound(fixture, owner("r"))
        assert [*cache.changed] == ["uid-r"]
        fixture.api.drop("pods", "default/r-0")
        fixture.api.drop("reservations", "r")
        await fixture.until_idle()
        assert not cache.changed

    simulate(story, large, profile)


def test_one_that_shows_a_fault_of_ours_keeps_no_other_from_its_status(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def poisoned(reservation: Reservation, *rest: Any) -> Any:
        if reservation.metadata.name == "a-poisoned":
            raise ZeroDivisionError("a fault of ours")
        return status_change(reservation, *rest)

    async def story(fixture: RunningScheduler) -> None:
        await available(fixture, "a-poisoned", "good")
        monkeypatch.setattr(controller, "status_change", poisoned)
        await bound(fixture, owner("good"))
        await fixture.until_idle(3)
        assert users(fixture, "good") == ["good-0"]

    simulate(story, large, profile)
    said = [each.message for each in caplog.records if "a-poisoned" in each.message]
    assert said == ["reservation a-poisoned could not be reconciled: ZeroDivisionError: a fault of ours"]
