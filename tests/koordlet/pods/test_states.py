"""What the agent knows of its node: completed, told to whom it concerns, and kept while others are away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from koordinator.api.kinds import NODE_SLOS, NODES
from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.koordlet.pods.states import StatesInformer
from tests.in_memory_api import InMemoryApi

NODE = "node-1"


class Watched:
    """An API server in memory, and what the states informer tells of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.api = InMemoryApi(self.clock)
        client = self.api.client()
        self.states = StatesInformer(client, NODE, clock=self.clock, random=Random(1), metrics=Metrics())
        self.policies: list[NodeSLOSpec] = []
        self.nodes: list[Node] = []
        self.states.on_node_slo(self.policies.append)
        self.states.on_node(self.nodes.append)

    def put_node(self, **metadata: Any) -> None:
        self.api.put(NODES, {"metadata": {"name": NODE, **metadata}})

    def put_policy(self, **spec: Any) -> None:
        self.api.put(NODE_SLOS, {"metadata": {"name": NODE}, "spec": spec})

    async def until_idle(self, seconds: float = 0.0) -> None:
        await self.clock.advance(seconds)


Story = Callable[[Watched], Awaitable[None]]


def play(story: Story) -> Watched:
    async def run() -> Watched:
        watched = Watched()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(watched.states.run())
            try:
                await watched.until_idle()
                await story(watched)
            finally:
                task.cancel()
        return watched

    return asyncio.run(run())


def suppress_threshold(spec: NodeSLOSpec | None) -> int | None:
    assert spec is not None
    assert spec.resource_used_threshold_with_be is not None
    return spec.resource_used_threshold_with_be.cpu_suppress_threshold_percent


def test_without_a_node_slo_there_is_no_policy() -> None:
    async def story(watched: Watched) -> None:
        watched.put_node()
        await watched.until_idle()

    watched = play(story)
    assert (watched.states.node_slo_spec, watched.policies) == (None, [])


def test_a_node_slo_that_says_nothing_gives_the_defaults() -> None:
    async def story(watched: Watched) -> None:
        watched.put_policy()
        await watched.until_idle()

    watched = play(story)
    assert [suppress_threshold(spec) for spec in watched.policies] == [65]
    assert watched.states.node_slo_spec is watched.policies[0]


def test_a_changed_policy_is_reported_and_one_that_means_the_same_is_not() -> None:
    async def story(watched: Watched) -> None:
        watched.put_policy()
        await watched.until_idle()
        watched.put_policy(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 65})
        await watched.until_idle()
        watched.put_policy(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 40})
        await watched.until_idle()

    assert [suppress_threshold(spec) for spec in play(story).policies] == [65, 40]


def test_a_policy_stays_in_force_when_its_object_is_deleted() -> None:
    async def story(watched: Watched) -> None:
        watched.put_policy(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 40})
        await watched.until_idle()
        watched.api.remove(NODE_SLOS, NODE)
        await watched.until_idle()

    assert suppress_threshold(play(story).states.node_slo_spec) == 40


def test_a_number_that_cannot_be_stored_leaves_the_policy_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def story(watched: Watched) -> None:
        watched.put_policy()
        await watched.until_idle()
        watched.put_policy(cpuBurstStrategy={"cpuBurstPercent": 2**63})
        await watched.until_idle()

    assert len(play(story).policies) == 1
    assert "cpuBurstPercent: 9223372036854775808 is out of range; the policy stays as it was" in caplog.text


def test_the_node_is_notified_when_its_labels_or_annotations_change() -> None:
    async def story(watched: Watched) -> None:
        watched.put_node()
        await watched.until_idle()
        watched.put_node(labels={"a": "b"})
        await watched.until_idle()
        watched.api.put(NODES, {"metadata": {"name": NODE, "labels": {"a": "b"}}, "status": {"phase": "Running"}})
        await watched.until_idle()
        watched.put_node(labels={"a": "b"}, annotations={"c": "d"})
        await watched.until_idle()

    reported = [(node.metadata.labels, node.metadata.annotations) for node in play(story).nodes]
    assert reported == [({}, {}), ({"a": "b"}, {}), ({"a": "b"}, {"c": "d"})]


def test_the_last_state_is_kept_while_the_api_server_is_away() -> None:
    async def story(watched: Watched) -> None:
        watched.put_node()
        watched.put_policy()
        await watched.until_idle()
        watched.api.go_away()
        watched.put_node(labels={"not": "seen"})
        watched.put_policy(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 1})
        await watched.until_idle(300)

    watched = play(story)
    assert [node.metadata.labels for node in watched.nodes] == [{}]
    assert watched.states.node is watched.nodes[0]
    assert suppress_threshold(watched.states.node_slo_spec) == 65
