"""What becomes of a Reservation whose binding fails: its room is free for others no sooner than nothing can bind it any
more, as it is for a pod."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.kinds import RESERVATIONS
from koordinator.kube.interface import PatchType
from koordinator.scheduler.binding.binder import DEADLINE
from tests.examples import examples
from tests.real_world.faulty_api_server import FAULTS, Fault, Rule
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins.reservation.test_node_faults import pending
from tests.scheduler.plugins.reservation.test_waking import one_node, profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate, two_nodes
from tests.scheduler.scheduler_api import SchedulerApi

AFTER = {name: fault for name, fault in FAULTS.items() if fault.carried_out}
BEFORE = {name: fault for name, fault in FAULTS.items() if fault.status and not fault.carried_out and not fault.delay}
ON_A = {"phase": "Available", "nodeName": "a"}


def status_patches(fault: Fault, times: float = float("inf")) -> Rule:
    return Rule(fault, "patch", "reservations", "status", times=times)


def play(rule: Rule, story: Callable[[RunningScheduler], Awaitable[None]]) -> RunningScheduler:
    """Play the story with a Reservation that is as large as the only node, and these failures of its writes."""

    def api() -> SchedulerApi:
        api = one_node()
        api.faults.rules.append(rule)
        api.store(pending(), RESERVATIONS)
        return api

    return simulate(story, api, profile)


def status(fixture: RunningScheduler) -> dict[str, str]:
    """The phase and the node."""
    found = fixture.api.document(RESERVATIONS, "r").get("status", {})
    return {key: found[key] for key in ("phase", "nodeName") if key in found}


async def a_rival_comes(fixture: RunningScheduler) -> None:
    """A pod that needs the whole node."""
    fixture.api.store(make_pod("rival", cpu="4"))
    await fixture.until_idle(12)


def sent_to(fixture: RunningScheduler) -> list[str]:
    """The requests that would have given it a node."""
    requests = [each for each in fixture.api.requests if (each.verb, each.plural) == ("patch", "reservations")]
    return [each.name for each in requests if b'"nodeName"' in each.body]


@pytest.mark.parametrize("fault", AFTER.values(), ids=AFTER)
def test_a_binding_that_was_carried_out_is_found_out(fault: Fault) -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(75)
        await a_rival_comes(fixture)
        assert status(fixture) == ON_A
        assert fixture.api.placed() == {}

    fixture = play(status_patches(fault, times=1), story)
    assert sent_to(fixture) == ["r"]
    assert [note for note in fixture.events.notes if note[:2] == ("r", "Scheduled")] == [
        ("r", "Scheduled", "Successfully assigned r to a")
    ]


def test_the_room_is_kept_while_a_lost_request_may_be_carried_out() -> None:
    """It comes back 40 seconds later, when the scheduler has long given up to send it."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(status_patches(FAULTS["etcd or a webhook fails"]))
        await fixture.until_idle(20)
        await a_rival_comes(fixture)
        assert fixture.api.placed() == {}, "the node is kept"
        fixture.api.faults.rules.clear()
        patch = {"status": {**ON_A, "allocatable": {"cpu": "4"}}}
        await fixture.api.client().patch(RESERVATIONS, "r", patch, PatchType.MERGE, subresource="status")
        await fixture.until_idle(30)
        assert status(fixture) == ON_A
        assert fixture.api.placed() == {}

    play(status_patches(Fault("drop"), times=1), story)


def test_the_room_is_free_once_a_lost_request_cannot_be_carried_out_any_more() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(status_patches(FAULTS["etcd or a webhook fails"]))
        await fixture.until_idle(DEADLINE)
        await a_rival_comes(fixture)
        assert fixture.api.placed() == {"rival": "a"}

    play(status_patches(Fault("drop"), times=1), story)


@pytest.mark.parametrize("name", BEFORE)
def test_one_whose_binding_always_fails_says_why_and_others_get_its_room(name: str) -> None:
    fault = BEFORE[name]

    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(15)
        text = f"binding rejected: {fault.message} ("
        assert any(each[:2] == ("r", "FailedScheduling") and text in each[2] for each in fixture.events.notes)
        fixture.api.store(make_pod("rival", cpu="4"))
        await fixture.until_idle(20)
        assert fixture.api.placed() == {"rival": "a"}

    play(status_patches(fault), story)


def test_one_that_others_have_changed_is_tried_again_as_it_is_now() -> None:
    """The conflict is one with the version that was read."""

    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(12)
        assert status(fixture) == ON_A

    play(status_patches(FAULTS["another writer was first"], times=1), story)


def test_one_that_is_deleted_meanwhile_leaves_nothing_behind() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(0.1)
        fixture.api.drop("reservations", "r")
        await a_rival_comes(fixture)
        assert fixture.api.placed() == {"rival": "a"}

    play(status_patches(FAULTS["the server is not ready"]), story)


def test_one_that_is_on_another_node_meanwhile_counts_there_alone() -> None:
    """Somebody else has done it; the watch is late to say so."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_node("b"))
        await fixture.until_idle(0.1)
        found = fixture.api.objects("reservations")["r"]
        fixture.api.store(replace(found, status=replace(found.status, phase="Available", node_name="b")), RESERVATIONS)
        fixture.api.faults.rules.clear()
        await a_rival_comes(fixture)
        await fixture.until_idle(DEADLINE)
        assert status(fixture) == {**ON_A, "nodeName": "b"}
        assert fixture.api.placed() == {"rival": "a"}

    play(status_patches(Fault("drop")), story)


def test_one_that_a_server_does_not_find_is_not_forgotten() -> None:
    """As while a server starts that does not know the kind yet."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.faults.rules.append(Rule(FAULTS["it is not there"], "get", "reservations", times=2))
        await fixture.until_idle(20)
        assert status(fixture) == ON_A

    play(status_patches(FAULTS["it is not there"], times=2), story)


def test_others_are_bound_beside_many_whose_bindings_are_never_answered() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(70):
            fixture.api.store(make_node(f"n{number}"))
            found = pending()
            metadata = replace(found.metadata, name=f"r{number}", uid=f"uid-r{number}")
            fixture.api.store(replace(found, metadata=metadata), RESERVATIONS)
        await fixture.until_idle(1)
        fixture.api.store(make_node("free"))
        await a_rival_comes(fixture)
        assert fixture.api.placed() == {"rival": "free"}
        fixture.api.faults.rules.clear()
        await fixture.until_idle(DEADLINE + 15)
        assert all(each.status.node_name for each in fixture.api.objects("reservations").values())

    play(status_patches(FAULTS["there is never an answer"]), story)


faults = st.one_of(st.none(), st.sampled_from(sorted(FAULTS)))


@settings(max_examples=examples(20))
@given(
    st.lists(faults, min_size=1, max_size=6),
    st.lists(faults, min_size=1, max_size=4),
    st.lists(st.floats(0, 20), min_size=1, max_size=6),
)
def test_any_mixture_of_faults_ends_well(writes: list[str | None], reads: list[str | None], times: list[float]) -> None:
    """No node holds too much, which ``simulate`` checks, and all get a node in the end."""

    async def story(fixture: RunningScheduler) -> None:
        api = fixture.api
        for number, (write, read, seconds) in enumerate(zip(writes * 2, cycle(reads), cycle(times), strict=False)):
            api.faults.rules += [status_patches(FAULTS[write], times=2)] if write is not None else []
            api.faults.rules += [Rule(FAULTS[read], "get", "reservations", times=2)] if read is not None else []
            found = pending(cpu="2" if number % 3 else "1")
            metadata = replace(found.metadata, name=f"r{number}", uid=f"uid-r{number}")
            api.store(replace(found, metadata=metadata), RESERVATIONS)
            api.store(make_pod(f"p{number}", cpu="1"))
            await fixture.until_idle(seconds)
        api.faults.rules.clear()
        api.store(make_node("c", cpu="64", memory="64Gi"))
        await fixture.until_idle(2 * DEADLINE)
        await fixture.until_idle(12)
        assert len(api.placed()) == len(api.objects("pods"))
        assert all(each.status.node_name for each in api.objects("reservations").values())

    simulate(story, two_nodes, profile)
