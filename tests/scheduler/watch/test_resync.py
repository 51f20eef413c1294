"""An event handler that failed on an event: it learns what it has missed, counts nothing twice, and nobody else
notices."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from types import FrameType
from typing import Any, Final

import pytest

from koordinator.api.codec import to_document
from koordinator.api.kinds import DEVICES, NODES, POD_GROUPS, PODS
from koordinator.api.labels import POD_GROUP
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
    "on_pod_resized",
    "on_pod_removed",
    "on_pod",
    "on_pod_gone",
    "on_node_object",
    "on_object",
)
_OF_ALLOCATORS: Final = ("on_allocated", "on_released", "restore")
RESYNCS: Final = "scheduler_plugin_resyncs_total"


AFTER: Final = 1_000_000


class Saboteur:
    """Makes methods of event handlers fail when they, and what they call of their plugins, have run so many ``lines``;
    0: before they have done anything, AFTER: when they have done everything."""

    def __init__(self, profile: Profile, *, lines: int = 0) -> None:
        self.left: Counter[tuple[str, str]] = Counter()
        """(class, method) -> how many calls are still to fail."""
        self.lines: defaultdict[tuple[str, str], int] = defaultdict(lambda: lines)
        self.concerns: Callable[[tuple[Any, ...]], bool] = lambda arguments: True
        """Whether a call with these arguments may fail."""
        for handler in event_handlers(profile):
            for point in points_of(handler):
                setattr(handler, point, self._failing(handler, point))

    def _failing(self, handler: EventHandler, point: str) -> Callable[..., Any]:
        method, key = getattr(handler, point), (type(handler).__name__, point)

        @wraps(method)
        def failing(*arguments: Any) -> Any:
            if self.left[key] <= 0 or not self.concerns(arguments):
                return method(*arguments)
            self.left[key] -= 1
            with interrupted(self.lines[key]):
                method(*arguments)
            raise RuntimeError("disk full")

        return failing


@contextmanager
def interrupted(lines: int) -> Iterator[None]:
    """Raise in the block once so many lines of plugins have run."""
    left, before = lines, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        nonlocal left
        if "/scheduler/plugins/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise RuntimeError("disk full")
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def event_handlers(profile: Profile) -> list[EventHandler]:
    found = [each for handler in profile.event_handlers for each in (handler, handler.event_handler)]
    return [handler for handler in dict.fromkeys(found) if points_of(handler)]


def points_of(handler: EventHandler) -> list[str]:
    found = [point for point in POINTS if getattr(type(handler), point) is not getattr(EventHandler, point)]
    return [*found, *(_OF_ALLOCATORS if isinstance(handler, AllocatorPlugin) else ())]


class Broken:
    """A running scheduler with the profile of the chart, whose event handlers can be made to fail."""

    def __init__(self, *, lines: int = 0, busy: bool = True) -> None:
        def profile(view: ClusterView) -> Profile:
            found = chart_profile(view)
            self.saboteur = Saboteur(found, lines=lines)
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


HALF_WAY: Final = (2, 5, 9, 15, 25)
FURTHER: Final = [pytest.param(lines, marks=pytest.mark.slow) for lines in (3, 7, 12, 19, 40)]


@pytest.mark.parametrize("lines", [0, *HALF_WAY, *FURTHER, AFTER])
@pytest.mark.parametrize("name", HANDLERS)
def test_one_that_failed_knows_what_the_others_know(name: str, lines: int) -> None:
    """Each of its methods fails once, before it has done anything, half-way, or when it has done everything."""
    expected = undisturbed()

    async def run() -> None:
        broken = Broken(lines=lines)
        async with broken.fixture.running():
            await until(broken.fixture, 12)
            broken.saboteur.left.update({(name, point): 1 for point in points_of(HANDLERS[name])})
            change_all(broken.fixture.api)
            await broken.fixture.until_idle()
            assert not +broken.saboteur.left, "these were not called"
            assert len(broken.fixture.scheduler.state.event_handlers.stale) == 1
            await until(broken.fixture, 4)
            assert not broken.fixture.scheduler.state.event_handlers.stale
            assert picture(broken.fixture) == expected

    asyncio.run(run())


@pytest.mark.parametrize("name", HANDLERS)
def test_one_that_failed_at_the_first_listing_too(name: str) -> None:
    expected = undisturbed()

    async def run() -> None:
        broken = Broken()
        broken.saboteur.left.update({(name, point): 2 for point in points_of(HANDLERS[name])})
        async with broken.fixture.running():
            assert broken.fixture.scheduler.state.event_handlers.stale
            broken.saboteur.left.clear()
            found = await play(broken.fixture)
            assert not broken.fixture.scheduler.state.event_handlers.stale
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
        "plugin DeviceShare failed in on_released and is notified of everything again: RuntimeError: disk full",
        "plugin DeviceShare has been notified of all that is there",
    ]


def devices_of(fixture: RunningScheduler, node: str) -> list[Any]:
    found = to_document(explain_node(fixture.scheduler.sources, node))
    assert found is not None
    devices: list[Any] = found["plugins"]["DeviceShare"]["devices"]
    return devices


def test_one_that_goes_on_failing_is_reported_again_a_limited_number_of_times(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        broken = Broken(busy=False)
        api, left = broken.fixture.api, broken.saboteur.left
        async with broken.fixture.running():
            left["DeviceShare", "on_node_object"] = 1000
            broken.saboteur.concerns = lambda arguments: arguments[1] == "Device" and not arguments[2].spec.devices
            api.put(DEVICES, {"metadata": {"name": "good"}, "spec": {"devices": []}})
            for _ in range(40):
                await broken.fixture.until_idle(60)
            labels = {"plugin": "DeviceShare", "method": "on_node_object"}
            assert broken.value("scheduler_plugin_errors_total", **labels) == 1 + TRIES
            assert broken.value(RESYNCS, plugin="DeviceShare", result="error") == 1
            assert not broken.fixture.scheduler.state.event_handlers.stale
            left.clear()
            api.put(PODS, pod("p", gpu=True, spec={"nodeSelector": {"kubernetes.io/hostname": "good"}}))
            await broken.fixture.until_idle(2)
            assert "p" in api.placed(), "as on a node that has not reported its devices"
            api.put(DEVICES, healthy(DEVICES, "good") | {"spec": {"devices": []}})
            await broken.fixture.until_idle(80)
            assert devices_of(broken.fixture, "good") == []

    asyncio.run(run())
    said = [record.message for record in caplog.records if "DeviceShare" in record.message]
    assert said == [
        "plugin DeviceShare failed in on_node_object and is notified of everything again: RuntimeError: disk full",
        f"plugin DeviceShare failed {TRIES} more times and is not notified of Device good until that changes",
    ]


def test_a_member_that_waits_for_its_gang_goes_on_waiting() -> None:
    async def run() -> None:
        broken = Broken(busy=False)
        api = broken.fixture.api
        mode = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
        group = {"metadata": {"name": "gang", "namespace": "default", "annotations": mode}, "spec": {"minMember": 2}}
        async with broken.fixture.running():
            api.put(POD_GROUPS, group)
            api.put(PODS, pod("first", labels={POD_GROUP: "gang"}))
            api.put(PODS, pod("second", labels={POD_GROUP: "gang"}, spec={"nodeSelector": {"zone": "z"}}))
            await broken.fixture.until_idle(2)
            view = broken.fixture.scheduler.state.view
            assert [each.pod.uid for each in view.waiting] == ["uid-first"]
            broken.saboteur.left["Gangs", "on_object"] = 1
            api.put(POD_GROUPS, {**group, "spec": {"minMember": 2, "scheduleTimeoutSeconds": 900}})
            await until(broken.fixture, 4)
            assert broken.value(RESYNCS, plugin="Coscheduling", result="success") == 1
            assert [each.pod.uid for each in view.waiting] == ["uid-first"]
            node = healthy(NODES, "good")
            api.put(NODES, {**node, "metadata": {**node["metadata"], "labels": {"zone": "z"}}})
            await until(broken.fixture, 12)
            assert api.placed().keys() >= {"first", "second"}

    asyncio.run(run())


def test_on_a_standby_too() -> None:
    expected = undisturbed()

    async def run() -> None:
        broken = Broken()
        watching = asyncio.create_task(broken.fixture.scheduler.watch())
        broken.saboteur.left["DeviceShare", "on_node_object"] = 1
        await broken.fixture.until_idle()
        assert broken.fixture.scheduler.state.event_handlers.stale
        found = await play(broken.fixture)
        assert not broken.fixture.scheduler.state.event_handlers.stale
        assert found == expected
        watching.cancel()

    asyncio.run(run())
