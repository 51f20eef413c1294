"""An event handler that failed on an event: it learns what it has missed, counts nothing twice, and nobody else
notices."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Final

import pytest

from koordinator.api.kinds import DEVICES, PODS
from koordinator.scheduler.engine.binding_points import AllocatorPlugin
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.resync import TRIES
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain import explain_node
from tests.scheduler.broken_input.test_broken_objects import chart_profile, healthy, running_beside, two_nodes
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.watch.busy_cluster import Document, busy_cluster, change_all, picture, pod

POINTS: Final = (
    "on_node",
    "on_node_removed",
    "on_pod_assigned",
    "on_pod_removed",
    "on_pod",
    "on_pod_gone",
    "on_node_object",
    "on_object",
)
_OF_ALLOCATORS: Final = ("on_allocated", "on_released", "restore")
RESYNCS: Final = "scheduler_plugin_resyncs_total"


class Saboteur:
    """Makes methods of event handlers fail. ``after``: they have done their work by then."""

    def __init__(self, profile: Profile, *, after: bool = False) -> None:
        self.left: Counter[tuple[str, str]] = Counter()
        """(class, method) -> how many calls are still to fail."""
        self._after = after
        for handler in event_handlers(profile):
            for point in points_of(handler):
                setattr(handler, point, self._failing(handler, point))

    def _failing(self, handler: EventHandler, point: str) -> Callable[..., Any]:
        method, key = getattr(handler, point), (type(handler).__name__, point)

        @wraps(method)
        def failing(*arguments: Any) -> Any:
            fails = self.left[key] > 0
            if not fails or self._after:
                found = method(*arguments)
            if fails:
                self.left[key] -= 1
                raise RuntimeError("disk full")
            return found

        return failing


def event_handlers(profile: Profile) -> list[EventHandler]:
    found = [each for handler in profile.event_handlers for each in (handler, handler.event_handler)]
    return [handler for handler in dict.fromkeys(found) if points_of(handler)]


def points_of(handler: EventHandler) -> list[str]:
    found = [point for point in POINTS if getattr(type(handler), point) is not getattr(EventHandler, point)]
    return [*found, *(_OF_ALLOCATORS if isinstance(handler, AllocatorPlugin) else ())]


class Broken:
    """A running scheduler with the profile of the chart, whose event handlers can be made to fail."""

    def __init__(self, *, after: bool = False, busy: bool = True) -> None:
        def profile(view: ClusterView) -> Profile:
            found = chart_profile(view)
            self.saboteur = Saboteur(found, after=after)
            return found

        self.fixture: RunningScheduler = running_beside(busy_cluster() if busy else two_nodes(), profile)

    def value(self, name: str, **labels: str) -> float | None:
        return self.fixture.registry.get_sample_value(name, labels)


async def play(fixture: RunningScheduler) -> Document:
    """All changes, and the picture after them, each at its time."""
    await until(fixture, 12)
    change_all(fixture.api)
    await until(fixture, 4)
    return picture(fixture)


async def until(fixture: RunningScheduler, seconds: int) -> None:
    for _ in range(seconds // 4):
        await fixture.until_idle(4)


@cache
def undisturbed() -> Document:
    """The picture of a scheduler that has seen everything without a failure."""

    async def run() -> Document:
        fixture = running_beside(busy_cluster())
        async with fixture.running():
            return await play(fixture)

    return asyncio.run(run())


HANDLERS: Final = {type(each).__name__: each for each in event_handlers(chart_profile(ClusterView(NodeColumns())))}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", HANDLERS)
def test_one_that_failed_knows_what_the_others_know(name: str, moment: str) -> None:
    """Each of its methods fails once, ``before`` it has done anything or ``after`` it has done everything."""
    expected = undisturbed()

    async def run() -> None:
        broken = Broken(after=moment == "after")
        async with broken.fixture.running():
            await until(broken.fixture, 12)
            broken.saboteur.left.update({(name, point): 1 for point in points_of(HANDLERS[name])})
            change_all(broken.fixture.api)
            await broken.fixture.until_idle()
            assert not +broken.saboteur.left, "these were not called"
            assert len(broken.fixture.scheduler.state.stale_handlers) == 1
            await until(broken.fixture, 4)
            assert not broken.fixture.scheduler.state.stale_handlers
            assert picture(broken.fixture) == expected

    asyncio.run(run())


@pytest.mark.parametrize("name", HANDLERS)
def test_one_that_failed_at_the_first_listing_too(name: str) -> None:
    expected = undisturbed()

    async def run() -> None:
        broken = Broken()
        broken.saboteur.left.update({(name, point): 2 for point in points_of(HANDLERS[name])})
        async with broken.fixture.running():
            assert broken.fixture.scheduler.state.stale_handlers
            broken.saboteur.left.clear()
            found = await play(broken.fixture)
            assert not broken.fixture.scheduler.state.stale_handlers
            assert found == expected

    asyncio.run(run())


def test_a_pod_that_was_rejected_by_what_was_missed_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        broken = Broken(busy=False)
        api, left = broken.fixture.api, broken.saboteur.left
        async with broken.fixture.running():
            for name in ("one", "two"):
                api.put(PODS, pod(name, gpu=True))
            await broken.fixture.until_idle(2)
            api.put(PODS, pod("p", gpu=True))
            await broken.fixture.until_idle(2)
            left["DeviceShare", "on_released"] = 2
            api.remove(PODS, "one", "default")
            await broken.fixture.until_idle(1)
            assert "p" not in api.placed()
            await until(broken.fixture, 24)
            assert "p" in api.placed()
            assert broken.value(RESYNCS, plugin="DeviceShare", result="success") == 1

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    said = [record.message for record in caplog.records if "DeviceShare" in record.message]
    assert said == [
        "plugin DeviceShare failed in on_released and is notified again later: RuntimeError: disk full",
        "plugin DeviceShare has been notified of all that it had missed",
    ]


def devices_of(fixture: RunningScheduler, node: str) -> list[Any]:
    found = explain_node(fixture.scheduler.sources, node)
    assert found is not None
    devices: list[Any] = found["plugins"]["DeviceShare"]["devices"]
    return devices


def test_one_that_goes_on_failing_is_reported_again_a_limited_number_of_times(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        broken = Broken(busy=False)
        api, left = broken.fixture.api, broken.saboteur.left
        async with broken.fixture.running():
            left["DeviceShare", "on_node_object"] = 1000
            api.put(DEVICES, {"metadata": {"name": "good"}, "spec": {"devices": []}})
            for _ in range(40):
                await broken.fixture.until_idle(60)
            labels = {"plugin": "DeviceShare", "method": "on_node_object"}
            assert broken.value("scheduler_plugin_errors_total", **labels) == 1 + TRIES
            assert broken.value(RESYNCS, plugin="DeviceShare", result="error") == 1
            assert not broken.fixture.scheduler.state.stale_handlers
            left.clear()
            api.put(PODS, pod("p", gpu=True, spec={"nodeSelector": {"kubernetes.io/hostname": "good"}}))
            await broken.fixture.until_idle(2)
            assert "p" in api.placed(), "by the devices that it knew"
            api.put(DEVICES, healthy(DEVICES, "good") | {"spec": {"devices": []}})
            await broken.fixture.until_idle()
            assert devices_of(broken.fixture, "good") == []

    asyncio.run(run())
    said = [record.message for record in caplog.records if "DeviceShare" in record.message]
    assert said == [
        "plugin DeviceShare failed in on_node_object and is notified again later: RuntimeError: disk full",
        f"plugin DeviceShare failed {TRIES} more times and is not notified again: it may be out of date until the next "
        "event",
    ]


def test_on_a_standby_too() -> None:
    expected = undisturbed()

    async def run() -> None:
        broken = Broken()
        watching = asyncio.create_task(broken.fixture.scheduler.watch())
        broken.saboteur.left["DeviceShare", "on_node_object"] = 1
        await broken.fixture.until_idle()
        assert broken.fixture.scheduler.state.stale_handlers
        found = await play(broken.fixture)
        assert not broken.fixture.scheduler.state.stale_handlers
        assert found == expected
        watching.cancel()

    asyncio.run(run())
