"""The whole scheduler with devices: what is written to pods and Reservations, and what is read back."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import DEVICE_ALLOCATED
from koordinator.api.kinds import DEVICES, RESERVATIONS
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.reservation import RESTRICTED, Reservation, ReservationStatus
from koordinator.scheduler.configuration.koordinator_arguments import DeviceShareArgs, ReservationArgs
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import RESIZE_POD
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.plugins.device_share.plugin import DeviceShare
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from tests.scheduler.fakes import make_node, make_profile
from tests.scheduler.ground.clusters import listed
from tests.scheduler.plugins.device_share.machines import PLENTY, device, gpu, make_device_pod
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi
from tests.waiting import wait_for

_ARGS: dict[type[Any], Any] = {
    ReservationPlugin: ReservationArgs(),
    DeviceShare: DeviceShareArgs(),
    DefaultPreBind: None,
}


def profile(view: ClusterView) -> Profile:
    view.gates = frozenset({RESIZE_POD})
    base = make_profile(view)
    order = base.order
    for kind in _ARGS:
        order = listed(order, kind)
    order = dataclasses.replace(order, pre_score=(*order.pre_score, "Reservation"), score=(("Reservation", 100),))
    return Profile(
        "koord-scheduler", {**base.plugins, **{kind.name: kind(args, view) for kind, args in _ARGS.items()}}, order
    )


def play(story: Callable[[RunningScheduler], Awaitable[None]], *pods: Pod, numa: int | None = None) -> None:
    """On a node with two GPUs; ``numa`` None: it is not known where they are."""
    api = SchedulerApi()
    node = make_node("a")
    node.status.allocatable.update(PLENTY)
    api.store(node)
    api.store(device(gpu(0, numa=numa), gpu(1, numa=numa)), DEVICES)
    for pod in pods:
        api.store(pod)

    async def run() -> None:
        fixture = RunningScheduler(api, profile, lambda pod, view: make_pod_info(pod))
        async with fixture.running():
            await story(fixture)

    asyncio.run(run())


def pending(gpu_amount: dict[str, Any], **spec: Any) -> Reservation:
    found = available(once=False)
    template = PodTemplateSpec(spec=make_device_pod("template", **gpu_amount).spec)
    metadata = replace(found.metadata, uid="uid-r")
    return replace(
        found, metadata=metadata, spec=replace(found.spec, template=template, **spec), status=ReservationStatus()
    )


def held(fixture: RunningScheduler, kind: str, name: str) -> list[int]:
    """The GPUs that the annotation names."""
    (found,) = [each for each in fixture.api.objects(kind).values() if each.metadata.name == name]
    text = found.metadata.annotations.get(DEVICE_ALLOCATED, "{}")
    return [each["minor"] for each in json.loads(text).get("gpu", ())]


def test_a_reservation_and_its_owner_name_the_same_gpu() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pending({"gpu_memory_ratio": 100}), RESERVATIONS)
        await wait_for(lambda: held(fixture, "reservations", "r") == [0])
        await fixture.until_idle()
        (reservation,) = fixture.api.objects("reservations").values()
        assert str(reservation.status.allocatable["koordinator.sh/gpu-memory"]) == "16Gi"
        fixture.api.store(make_device_pod("p", gpu_memory_ratio=100))
        fixture.api.store(make_device_pod("o", gpu_memory_ratio=100, labels=OWNER))
        await wait_for(lambda: held(fixture, "pods", "p") == [1])
        await wait_for(lambda: held(fixture, "pods", "o") == [0])

    play(story)


@pytest.mark.parametrize("numa", [None, 0])
def test_a_reservation_keeps_the_gpu_of_the_pod_that_it_takes_over(numa: int | None) -> None:
    text = (
        '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-memory-ratio":"100","koordinator.sh/gpu-memory":"16Gi"}}]}'
    )
    running = make_device_pod("o", gpu_memory_ratio=100, labels=OWNER)
    running = replace(running, spec=replace(running.spec, node_name="a"))
    running.metadata.annotations[DEVICE_ALLOCATED] = text

    async def story(fixture: RunningScheduler) -> None:
        wanted = pending({"gpu_memory_ratio": 100}, pre_allocation=True, allocate_policy=RESTRICTED)
        fixture.api.store(wanted, RESERVATIONS)
        await wait_for(lambda: held(fixture, "reservations", "r") == [1])
        fixture.api.store(make_device_pod("p", gpu_memory_ratio=100))
        await wait_for(lambda: held(fixture, "pods", "p") == [0])

    play(story, running, numa=numa)


def test_a_pod_waits_for_a_device_object_that_has_what_it_wants() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_device_pod("p", gpu_memory="20Gi"))
        await fixture.until_idle()
        assert fixture.api.placed() == {}
        fixture.api.store(device(gpu(0, memory="40Gi")), DEVICES)
        await wait_for(lambda: held(fixture, "pods", "p") == [0])

    play(story)
