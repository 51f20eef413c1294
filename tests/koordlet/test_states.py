"""What the agent knows of its node: completed, told to whom it concerns, and kept while others are away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any, TypeVar

import pytest

from koordinator.api.kinds import NODE_SLOS, NODES, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.koordlet.states import StatesInformer
from koordinator.kube.errors import TransportError
from koordinator.kube.interface import WatchEvent
from tests.cluster.nodes.memory_api import MemoryApi
from tests.kube.fake_client import as_client

T = TypeVar("T", bound=Object)
NODE = "node-1"


class FaultyApi(MemoryApi):
    """Once it is away, watches end at the next event and nothing answers."""

    is_away = False

    async def watch(self, kind: Kind[T], namespace: str = "", **arguments: Any) -> AsyncIterator[WatchEvent[T]]:
        async for event in super().watch(kind, namespace, **arguments):
            if self.is_away:
                raise TransportError("connection reset")
            yield event

    def go_away(self) -> None:
        def refuse(verb: str, plural: str, name: str) -> None:
            raise TransportError("connection refused")

        self.is_away = True
        self.fail = refuse


class World:
    """An API server in memory, and what the states informer tells of it."""

    def __init__(self) -> None:
        self.api = FaultyApi()
        self.clock = ManualClock()
        self.states = StatesInformer(as_client(self.api), NODE, clock=self.clock, random=Random(1), metrics=Metrics())
        self.policies: list[NodeSLOSpec] = []
        self.nodes: list[Node] = []
        self.states.on_node_slo(self.policies.append)
        self.states.on_node(self.nodes.append)

    def put_node(self, **metadata: Any) -> None:
        self.api.put(NODES, {"metadata": {"name": NODE, **metadata}})

    def put_policy(self, **spec: Any) -> None:
        self.api.put(NODE_SLOS, {"metadata": {"name": NODE}, "spec": spec})

    async def settle(self, seconds: float = 0.0) -> None:
        await self.clock.advance(seconds)


Story = Callable[[World], Awaitable[None]]


def play(story: Story) -> World:
    async def run() -> World:
        world = World()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(world.states.run())
            try:
                await world.settle()
                await story(world)
            finally:
                task.cancel()
        return world

    return asyncio.run(run())


def suppress_threshold(spec: NodeSLOSpec | None) -> int | None:
    assert spec is not None
    assert spec.resource_used_threshold_with_be is not None
    return spec.resource_used_threshold_with_be.cpu_suppress_threshold_percent


def test_without_a_node_slo_there_is_no_policy() -> None:
    async def story(world: World) -> None:
        world.put_node()
        await world.settle()

    world = play(story)
    assert (world.states.node_slo_spec, world.policies) == (None, [])


def test_a_node_slo_that_says_nothing_gives_the_defaults() -> None:
    async def story(world: World) -> None:
        world.put_policy()
        await world.settle()

    world = play(story)
    assert [suppress_threshold(spec) for spec in world.policies] == [65]
    assert world.states.node_slo_spec is world.policies[0]


def test_a_changed_policy_is_told_and_one_that_means_the_same_is_not() -> None:
    async def story(world: World) -> None:
        world.put_policy()
        await world.settle()
        world.put_policy(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 65})
        await world.settle()
        world.put_policy(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 40})
        await world.settle()

    assert [suppress_threshold(spec) for spec in play(story).policies] == [65, 40]


def test_a_policy_stays_in_force_when_its_object_is_deleted() -> None:
    async def story(world: World) -> None:
        world.put_policy(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 40})
        await world.settle()
        await world.api.delete(NODE_SLOS, NODE)
        await world.settle()

    assert suppress_threshold(play(story).states.node_slo_spec) == 40


def test_a_number_that_cannot_be_stored_leaves_the_policy_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def story(world: World) -> None:
        world.put_policy()
        await world.settle()
        world.put_policy(cpuBurstStrategy={"cpuBurstPercent": 2**63})
        await world.settle()

    assert len(play(story).policies) == 1
    assert "cpuBurstPercent: 9223372036854775808 is out of range; the policy stays as it was" in caplog.text


def test_the_node_is_told_when_its_labels_or_annotations_change() -> None:
    async def story(world: World) -> None:
        world.put_node()
        await world.settle()
        world.put_node(labels={"a": "b"})
        await world.settle()
        world.api.put(NODES, {"metadata": {"name": NODE, "labels": {"a": "b"}}, "status": {"phase": "Running"}})
        await world.settle()
        world.put_node(labels={"a": "b"}, annotations={"c": "d"})
        await world.settle()

    told = [(node.metadata.labels, node.metadata.annotations) for node in play(story).nodes]
    assert told == [({}, {}), ({"a": "b"}, {}), ({"a": "b"}, {"c": "d"})]


def test_the_last_state_is_kept_while_the_api_server_is_away() -> None:
    async def story(world: World) -> None:
        world.put_node()
        world.put_policy()
        await world.settle()
        world.api.go_away()
        world.put_node(labels={"not": "seen"})
        world.put_policy(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 1})
        await world.settle(300)

    world = play(story)
    assert [node.metadata.labels for node in world.nodes] == [{}]
    assert world.states.node is world.nodes[0]
    assert suppress_threshold(world.states.node_slo_spec) == 65
