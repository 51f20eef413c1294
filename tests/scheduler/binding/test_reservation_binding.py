"""A reservation gets its node: the plugins that are called then, and what they want is written to the reservation.

No plugin of this package puts reservations into the queue yet; a pod of the API stands in for the one that would.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from koordinator.api.annotations import RESERVATION_NAME, RESERVE_POD
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.binding_points import (
    BindOutcome,
    BindPlugin,
    ClusterWriter,
    CycleState,
    PodChanges,
    PreBindPlugin,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.framework_hooks import ReservationPreBindPlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


class Shared(Plugin):
    def class_key(self, pod: PodInfo) -> Hashable:
        return None


class Devices(ReservationPreBindPlugin, PreBindPlugin, Shared):
    """Notes which devices it has chosen, on pods and on reservations."""

    name = "Devices"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.pods: list[str] = []

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        self.pods.append(pod.pod.metadata.name)

    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        if "broken" in reservation.metadata.labels:
            raise RuntimeError("no such device")
        changes.annotations["devices"] = f"gpu-0 on {node.name}"


class Cpus(ReservationPreBindPlugin, Shared):
    name = "Cpus"

    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        changes.annotations["cpus"] = f"0-3, and {changes.annotations['devices']}"


class Placer(BindPlugin, Shared):
    name = "Placer"

    async def bind(self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter) -> BindOutcome:
        return BindOutcome.BOUND


class ReservationApi(SchedulerApi):
    """One node, one reservation; keeps the patches of reservations."""

    def __init__(self, **labels: str) -> None:
        super().__init__()
        self.store(make_node("a"))
        self.store(Reservation(metadata=ObjectMeta(name="room", uid="uid-room", labels=labels)), RESERVATIONS)

    @property
    def patches(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            (requested.name, json.loads(requested.body))
            for requested in self.requests
            if (requested.verb, requested.plural) == ("patch", "reservations")
        ]


def profile(view: ClusterView, *kinds: type[Plugin]) -> Profile:
    base = make_profile(view)
    own: list[Plugin] = [kind(None, view) for kind in kinds or (Devices, Cpus, DefaultPreBind, Placer)]
    names = tuple(plugin.name for plugin in own)
    order = replace(base.order, pre_bind=names, bind=names)
    return Profile(base.scheduler_name, {**base.plugins, **dict(zip(names, own, strict=True))}, order)


def stand_in(uid: str = "uid-room", node: str = "") -> Pod:
    pod = make_pod("p", uid=uid, node=node)
    pod.metadata.annotations.update({RESERVE_POD: "true", RESERVATION_NAME: "room"})
    return pod


def place(api: ReservationApi, *kinds: type[Plugin], pod: Pod | None = None, bound: bool = False) -> RunningScheduler:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod or stand_in())
        await fixture.until_idle()
        if bound:
            fixture.api.store(stand_in(node="a"))

    return simulate(story, lambda: api, lambda view: profile(view, *kinds))


def test_what_plugins_decide_is_written_to_the_reservation_as_one_patch() -> None:
    api = ReservationApi()
    fixture = place(api, bound=True)
    wanted = {"devices": "gpu-0 on a", "cpus": "0-3, and gpu-0 on a"}
    assert api.patches == [("room", {"metadata": {"uid": "uid-room", "annotations": wanted}})]
    assert ("p", "Scheduled", "Successfully assigned default/p to a") in fixture.events.notes


def test_pre_bind_plugins_are_called_for_ordinary_pods_alone() -> None:
    api = ReservationApi()

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(stand_in())
        fixture.api.store(make_pod("ordinary"))
        await fixture.until_idle()
        fixture.api.store(stand_in(node="a"))
        fixture.api.store(make_pod("ordinary", node="a"))

    fixture = simulate(story, lambda: api, profile)
    devices = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Devices"]
    assert isinstance(devices, Devices)
    assert devices.pods == ["ordinary"]


def test_a_reservation_whose_plugin_fails_is_tried_again() -> None:
    api = ReservationApi(broken="")
    place(api)
    assert api.patches == []
    assert api.conditions[0][1:] == ("SchedulerError", "binding rejected: no such device")


def test_a_namesake_of_the_reservation_is_left_alone() -> None:
    api = ReservationApi()
    place(api, pod=stand_in(uid="uid-before"))
    assert api.patches == []
    assert api.conditions[0][2] == ("binding rejected: reservation 'room', for which the pod stands, does not exist")


def test_a_pod_that_stands_for_a_reservation_is_not_bound_itself() -> None:
    api = ReservationApi()
    place(api, Devices, DefaultPreBind)
    assert api.bindings == []
    assert api.conditions[0][2] == "binding rejected: no plugin of the profile gives reservations their nodes"


def test_a_profile_without_such_plugins_knows_no_reservations() -> None:
    api = ReservationApi()
    place(api, DefaultPreBind)
    assert api.bindings == [("p", "a")]
