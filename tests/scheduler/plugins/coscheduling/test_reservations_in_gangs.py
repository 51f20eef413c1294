"""Reservations whose labels or annotations name a gang are its members, as pods are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from koordinator.api.annotations import BIND_GANG_KEYS
from koordinator.api.duration import GoDuration
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.reservation import Reservation, ReservationStatus
from koordinator.scheduler.configuration.koordinator_arguments import CoschedulingArgs, ReservationArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from tests.scheduler.fakes import make_node, make_profile
from tests.scheduler.ground.clusters import listed
from tests.scheduler.plugins.coscheduling.gang_fakes import gang_annotations, member
from tests.scheduler.plugins.reservation.test_free_capacity import available
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

Story = Callable[[RunningScheduler], Awaitable[None]]


def profile(view: ClusterView) -> Profile:
    base = make_profile(view)
    plugins = {
        ReservationPlugin.name: ReservationPlugin(ReservationArgs(), view),
        Coscheduling.name: Coscheduling(CoschedulingArgs(default_timeout=GoDuration(seconds=60)), view),
        "DefaultPreBind": DefaultPreBind(None, view),
    }
    order = listed(listed(listed(base.order, ReservationPlugin), Coscheduling), DefaultPreBind)
    return Profile(base.scheduler_name, {**base.plugins, **plugins}, order)


def wanted(name: str, gang: str, minimum: int, cpu: str = "3") -> Reservation:
    """One that has no node yet; its namespace counts as ``default``."""
    found = available(name, cpu)
    metadata = replace(found.metadata, annotations=gang_annotations(gang, minimum))
    template = found.spec.template
    assert template is not None
    template = replace(template, spec=replace(template.spec, scheduler_name="koord-scheduler"))
    return replace(found, metadata=metadata, spec=replace(found.spec, template=template), status=ReservationStatus())


def nodes(count: int) -> SchedulerApi:
    api = SchedulerApi()
    for number in range(count):
        api.store(make_node(f"n{number}", cpu="4"))
    return api


def node_of(fixture: RunningScheduler, name: str) -> str:
    return str(fixture.api.objects("reservations")[name].status.node_name)


def run(story: Story, count: int) -> RunningScheduler:
    return simulate(story, lambda: nodes(count), profile)


def test_reservations_of_a_gang_become_available_together_and_say_so() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for name in ("r1", "r2"):
            fixture.api.store(wanted(name, "g", 2), RESERVATIONS)
        await fixture.until_idle(2)
        assert {node_of(fixture, "r1"), node_of(fixture, "r2")} == {"n0", "n1"}
        for name in ("r1", "r2"):
            annotations = fixture.api.objects("reservations")[name].metadata.annotations
            assert [annotations[key] for key in BIND_GANG_KEYS] == ["default/g", "2"] * 2

    run(story, 2)


def test_none_of_them_keeps_a_node_when_one_finds_none() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for name in ("r1", "r2"):
            fixture.api.store(wanted(name, "g", 2), RESERVATIONS)
        await fixture.until_idle(2)
        assert (node_of(fixture, "r1"), node_of(fixture, "r2")) == ("", "")
        fixture.api.store(make_node("n1", cpu="4"))
        await fixture.until_idle(2)
        assert {node_of(fixture, "r1"), node_of(fixture, "r2")} == {"n0", "n1"}

    run(story, 1)


def test_a_pod_and_a_reservation_are_a_gang() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(member("g", 1, 2))
        await fixture.until_idle()
        assert fixture.api.placed() == {}
        fixture.api.store(wanted("r", "g", 2), RESERVATIONS)
        await fixture.until_idle(2)
        assert fixture.api.placed() == {"g-1": "n0"}
        assert node_of(fixture, "r")

    run(story, 1)


def test_a_reservation_for_a_member_that_moves_waits_for_nobody() -> None:
    """As the descheduler makes it: with the pod's own annotations, while the gang runs."""

    async def story(fixture: RunningScheduler) -> None:
        for number in (1, 2):
            pod = member("g", number, 2)
            fixture.api.store(replace(pod, spec=replace(pod.spec, node_name="n0")))
        await fixture.until_idle()
        fixture.api.store(wanted("r", "g", 2), RESERVATIONS)
        await fixture.until_idle(2)
        assert node_of(fixture, "r") == "n1"

    run(story, 2)


def test_a_reservation_that_is_deleted_is_no_member_any_more() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(wanted("r", "g", 2), RESERVATIONS)
        await fixture.until_idle()
        fixture.api.drop("reservations", "r")
        await fixture.until_idle()
        fixture.api.store(member("g", 1, 2))
        await fixture.until_idle(2)
        assert fixture.api.placed() == {}

    run(story, 1)
