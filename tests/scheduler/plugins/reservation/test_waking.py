"""A pod that waits hears of what the Reservations that it owns have for it, whichever plugin had rejected the node."""

from __future__ import annotations

from msgspec.structs import replace

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Pod
from koordinator.api.reservation import ReservationOwner
from koordinator.scheduler.configuration.koordinator_arguments import ReservationArgs
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_annotation
from tests.scheduler.fakes import Fit, make_node, make_pod, make_profile
from tests.scheduler.ground.clusters import listed
from tests.scheduler.plugins.reservation.test_free_capacity import available, noted, owner
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


class LookingFit(Fit):
    """As the real one: wakes a pod when the node that the event is about has free capacity, as the node is."""

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        about = event.new if event.new is not None else event.old
        name = about.pod.spec.node_name if isinstance(about, PodInfo) else ""
        row = self.view.columns.row_of.get(name)
        return row is None or not self.filter_one(pod, None, row)


def profile(view: ClusterView) -> Profile:
    base = make_profile(view)
    plugins = {
        "Fit": LookingFit(None, view),
        ReservationPlugin.name: ReservationPlugin(ReservationArgs(), view),
        "DefaultPreBind": DefaultPreBind(None, view),
    }
    order = listed(listed(base.order, ReservationPlugin), DefaultPreBind)
    return Profile("koord-scheduler", {**base.plugins, **plugins}, order)


def one_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a"))
    return api


def bound(pod: Pod, reservation: str = "") -> Pod:
    """On node ``a``, and a user of the Reservation, if one is named."""
    placed = replace(pod, spec=replace(pod.spec, node_name="a"))
    if not reservation:
        return placed
    return noted(placed, {RESERVATION_ALLOCATED: allocated_annotation(reservation, f"uid-{reservation}")})


def test_an_owner_is_woken_when_another_owner_leaves_the_reservation() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(available(once=False), RESERVATIONS)
        fixture.api.store(bound(owner("first"), "r"))
        await fixture.until_idle()
        fixture.api.store(owner("second"))
        await fixture.until_idle()
        assert "second" not in fixture.api.placed()
        fixture.api.drop("pods", "default/first")
        await fixture.until_idle(2)
        assert fixture.api.placed() == {"second": "a"}

    simulate(story, one_node, profile)


def test_a_pod_is_woken_when_it_becomes_an_owner() -> None:
    async def story(fixture: RunningScheduler) -> None:
        nobodys = available(once=False)
        others = [ReservationOwner(label_selector=LabelSelector(match_labels={"app": "other"}))]
        fixture.api.store(replace(nobodys, spec=replace(nobodys.spec, owners=others)), RESERVATIONS)
        await fixture.until_idle()
        fixture.api.store(owner("p"))
        await fixture.until_idle()
        assert "p" not in fixture.api.placed()
        fixture.api.store(nobodys, RESERVATIONS)
        await fixture.until_idle(2)
        assert fixture.api.placed() == {"p": "a"}

    simulate(story, one_node, profile)


def attempts(fixture: RunningScheduler, name: str) -> int:
    return sum(pod == name for pod, _, _ in fixture.events.notes)


def test_a_pod_that_owns_nothing_sleeps_on() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(available(once=False), RESERVATIONS)
        fixture.api.store(bound(owner("first"), "r"))
        await fixture.until_idle()
        fixture.api.store(make_pod("stranger", cpu="3"))
        await fixture.until_idle()
        fixture.api.drop("pods", "default/first")
        await fixture.until_idle(2)
        assert attempts(fixture, "stranger") == 1
        fixture.api.drop("reservations", "r")
        await fixture.until_idle(2)
        assert fixture.api.placed() == {"stranger": "a"}

    simulate(story, one_node, profile)
