"""Enforcement of a whole agent while what it depends on is away, changes its mind, or cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import EVENTS, NODE_SLOS, PODS
from tests.koordlet.enforce.test_evictions import evicted, pressed_node
from tests.koordlet.node_under_test import NodeUnderTest
from tests.koordlet.suppressed_node import BY_QUOTA, NO_QUOTA, SuppressedNode


@asynccontextmanager
async def held_down(folder: Path, *gates: str) -> AsyncIterator[SuppressedNode]:
    """A node whose best-effort pods have what the online pod leaves them; ``gates`` are open."""
    node = SuppressedNode(folder)
    node.gates = gates
    async with node.running():
        await node.pass_seconds(4)
        assert node.quota == node.wanted == 160_000
        yield node


async def follow_the_load(node: SuppressedNode, seconds: int) -> None:
    """The quota is that of the load two seconds after the load has changed; it changes every five."""
    for number in range(seconds // 5):
        node.pod_cores = (1.5, 0.5)[number % 2]
        await node.pass_seconds(3)
        assert node.quota == node.wanted
        await node.pass_seconds(2)


def run(story: Any) -> None:
    asyncio.run(story())


def test_an_api_server_that_is_away_for_minutes_holds_up_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with held_down(tmp_path) as node:
            node.api.away = True
            await follow_the_load(node, 130)
            assert node.status == {}
            node.api.away = False
            await node.pass_seconds(40)
            assert {each["name"] for each in node.status["podsMetric"]} == {"web", "job"}

    run(story)


def test_a_kubelet_that_is_away_for_minutes_holds_up_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with held_down(tmp_path) as node:
            node.kubelet_is_up = False
            await follow_the_load(node, 130)

    run(story)


def test_an_audit_log_that_cannot_be_written_holds_up_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "audit").write_text("in the way of the folder")
        async with held_down(tmp_path, "AuditEvents") as node:
            await follow_the_load(node, 20)

    run(story)


def test_a_usage_that_cannot_be_read_leaves_everything_as_it_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with held_down(tmp_path) as node:
            node.hides_stat = True
            await node.pass_seconds(3)
            node.pod_cores = 1.5
            await node.pass_seconds(30)
            assert node.quota == 160_000
            node.hides_stat = False
            await node.pass_seconds(4)
            assert node.quota == node.wanted == 60_000

    run(story)


def test_a_policy_that_changes_its_mind_every_second_is_what_it_said_last(tmp_path: Path) -> None:
    """On, off, and something that cannot be used, in turn: no quota is ever seen that none of them requested."""
    said = ({"enable": False}, BY_QUOTA, {**BY_QUOTA, "cpuSuppressThresholdPercent": 400})

    async def story() -> None:
        async with held_down(tmp_path) as node:
            seen = set()
            for second in range(30):
                node.suppress(**said[second % 3])
                await node.pass_seconds(1)
                seen.add(node.quota)
            # It says last what cannot be used: before that, suppression was on.
            await node.pass_seconds(3)
            assert seen == {NO_QUOTA, node.wanted}
            assert node.quota == node.wanted
            # One event, however often.
            assert [each["reason"] for each in node.api.all(EVENTS)].count("InvalidNodeSLO") == 1

    run(story)


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_clock_that_is_set_costs_some_seconds(tmp_path: Path, step: timedelta) -> None:
    async def story() -> None:
        async with held_down(tmp_path) as node:
            node.clock.set_wall(node.clock.now() + step)
            await follow_the_load(node, 20)

    run(story)


def pressed(folder: Path) -> NodeUnderTest:
    """So that all three best-effort pods have to go, one after the other."""
    return pressed_node(folder, 12, 10)


def test_nobody_is_evicted_for_what_memory_was_used_a_while_ago(tmp_path: Path) -> None:
    """Evictions are switched on when the use of memory, which was high, cannot be read any more."""

    async def story() -> None:
        node = pressed(tmp_path)
        (wanted,) = node.api.all(NODE_SLOS)
        node.show_slo({"resourceUsedThresholdWithBE": {"enable": False}})
        async with node.running():
            await node.pass_seconds(5)
            node.break_meminfo = True
            await node.pass_seconds(4)
            node.show_slo(wanted["spec"])
            await node.pass_seconds(30)
            assert evicted(node) == []
            node.break_meminfo = False
            await node.pass_seconds(5)
            assert evicted(node) != []

    run(story)


def test_nobody_is_evicted_twice_though_kubelet_and_the_clock_say_nothing_new(tmp_path: Path) -> None:
    """Kubelet is away and tells of the evicted pods as of running ones; the clock is set ahead by an hour."""

    async def story() -> None:
        node = pressed(tmp_path)
        async with node.running():
            await node.pass_seconds(3)
            node.kubelet_is_up = False
            node.clock.set_wall(node.clock.now() + timedelta(hours=1))
            await node.pass_seconds(60)
            assert sorted(evicted(node)) == ["a", "b", "c"]
            assert {pod["metadata"]["name"] for pod in node.api.all(PODS)} <= {"a", "b", "c"}

    run(story)
