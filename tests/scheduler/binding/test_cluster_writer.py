"""Waiting for what others make of objects: whom an event wakes, and how often. Patches that fail alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any

import pytest

from koordinator.api.kinds import ELASTIC_QUOTAS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, Kind
from koordinator.api.meta import Object, ObjectMeta
from koordinator.base.clock import ManualClock
from koordinator.scheduler.binding.cluster_writer import ApiWriter
from koordinator.scheduler.engine.binding_points import ObjectPatch
from koordinator.scheduler.engine.events import ClusterEvent, object_event
from tests.in_memory_api import InMemoryApi
from tests.real_world.faulty_api_server import FAULTS, Rule
from tests.scheduler.fakes import describe, make_node, make_pod

WAITERS = 500
Objects = Callable[[], Iterable[tuple[Kind[Any], str]]]


def claim_event(name: str) -> ClusterEvent:
    claim = Object(metadata=ObjectMeta(name=name, namespace="default"))
    return ClusterEvent(object_event(PERSISTENT_VOLUME_CLAIMS, claim, claim), claim, claim)


class Waiting:
    """Many who wait each for a claim of their own."""

    def __init__(self, *, named: bool) -> None:
        self.clock = ManualClock()
        self.writer = ApiWriter(InMemoryApi().client(), self.clock, Random(1))
        self.calls = [0] * WAITERS
        self.bound: set[int] = set()
        self.named = named

    async def wait(self, number: int, seconds: float = 600.0) -> bool:
        def is_bound() -> bool:
            self.calls[number] += 1
            return number in self.bound

        def objects() -> Iterable[tuple[Kind[Any], str]]:
            return [(PERSISTENT_VOLUME_CLAIMS, f"default/c{number}")]

        return await self.writer.until(is_bound, seconds, objects if self.named else None)

    def play(self, story: Callable[[list[asyncio.Task[bool]]], Awaitable[None]]) -> None:
        async def run() -> None:
            tasks = [asyncio.create_task(self.wait(number)) for number in range(WAITERS)]
            await self.clock.advance(0)
            await story(tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(run())


def test_an_event_wakes_who_waits_for_its_object_and_nobody_else() -> None:
    waiting = Waiting(named=True)

    async def story(tasks: list[asyncio.Task[bool]]) -> None:
        for _ in range(20):
            waiting.writer.notify(claim_event("c7"))
            waiting.writer.notify(claim_event("of-nobody"))
            await waiting.clock.advance(0)
        assert waiting.calls[7] == 1 + 20
        assert sum(waiting.calls) == WAITERS + 20
        waiting.bound.add(7)
        waiting.writer.notify(claim_event("c7"))
        await waiting.clock.advance(0)
        assert [number for number, task in enumerate(tasks) if task.done()] == [7]
        assert tasks[7].result() is True

    waiting.play(story)
    assert not waiting.writer.waiting


def test_who_names_no_objects_is_queried_ten_times_a_second_at_most() -> None:
    waiting = Waiting(named=False)

    async def story(tasks: list[asyncio.Task[bool]]) -> None:
        for _ in range(100):
            waiting.writer.notify(claim_event("c7"))
            await waiting.clock.advance(0.01)
        assert max(waiting.calls) <= 1 + 2 * 10 + 1
        waiting.bound.update(range(WAITERS))
        waiting.writer.notify(claim_event("c7"))
        await waiting.clock.advance(0.1)
        assert all(task.done() and task.result() for task in tasks)

    waiting.play(story)


def test_without_events_nobody_is_queried_again_before_the_end() -> None:
    waiting = Waiting(named=True)

    async def story(tasks: list[asyncio.Task[bool]]) -> None:
        await waiting.clock.advance(599)
        assert sum(waiting.calls) == WAITERS
        await waiting.clock.advance(2)
        assert not any(task.result() for task in tasks)

    waiting.play(story)


@pytest.mark.parametrize(
    ("wanted", "event"),
    [
        ((NODES, "a"), ClusterEvent("Node/Delete", make_node("a"))),
        ((NODES, "a"), ClusterEvent("Node/UpdateNodeLabel", make_node("a"), make_node("a"))),
        ((PODS, "default/p"), ClusterEvent("Pod/Delete", describe(make_pod("p")))),
    ],
)
def test_nodes_and_pods_count_as_objects(wanted: tuple[Kind[Any], str], event: ClusterEvent) -> None:
    async def run() -> bool:
        writer, responses = ApiWriter(InMemoryApi().client(), ManualClock(), Random(1)), iter([False, True])
        waiting = asyncio.create_task(writer.until(lambda: next(responses), 60, lambda: [wanted]))
        await asyncio.sleep(0)
        writer.notify(event)
        async with asyncio.timeout(5):
            return await waiting

    assert asyncio.run(run())


def test_what_is_waited_for_may_turn_out_on_the_way() -> None:
    """A claim names its volume only when it is bound."""

    async def run() -> list[int]:
        writer, calls = ApiWriter(InMemoryApi().client(), ManualClock(), Random(1)), list[int]()
        names = iter(["c1", "c2"])

        def condition() -> bool:
            calls.append(len(calls))
            return len(calls) == 3

        waiting = asyncio.create_task(
            writer.until(condition, 60, lambda: [(PERSISTENT_VOLUME_CLAIMS, f"default/{next(names)}")])
        )
        counts = []
        for name in ("c2", "c1", "c1", "c2"):
            await asyncio.sleep(0)
            writer.notify(claim_event(name))
            for _ in range(5):
                await asyncio.sleep(0)
            counts.append(len(calls))
        assert waiting.done()
        return counts

    assert asyncio.run(run()) == [1, 2, 2, 3]


@pytest.mark.parametrize(
    "fault", ["there is never an answer", "etcd or a webhook fails", "the server asks for an hour"]
)
def test_a_patch_that_fails_delays_no_other_and_is_not_begun_twice(fault: str) -> None:
    async def story() -> None:
        clock = ManualClock()
        api = InMemoryApi(clock)
        names = [f"q{number}" for number in range(30)]
        for name in names:
            api.put(ELASTIC_QUOTAS, {"metadata": {"name": name, "namespace": "default"}, "spec": {}})
        rule = Rule(FAULTS[fault], "patch", "elasticquotas", name="q1*")
        api.faults.rules.append(rule)
        writer = ApiWriter(api.client(clock), clock, Random(1))
        patch = {"metadata": {"annotations": {"seen": "yes"}}}
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(writer.run())
            await clock.advance(0)
            for _ in range(3):
                writer.patch_each(ELASTIC_QUOTAS, (ObjectPatch(name, "default", patch) for name in names))
            await clock.advance(0.1)
            done = {each["metadata"]["name"] for each in api.all(ELASTIC_QUOTAS) if "annotations" in each["metadata"]}
            assert done == {name for name in names if not name.startswith("q1")}
            assert len(rule.hits) == len(set(rule.hits)) == 11
            running.cancel()

    asyncio.run(story())
