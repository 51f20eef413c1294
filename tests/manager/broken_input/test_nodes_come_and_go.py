"""Nodes and their objects that come and go in any order, by any hand: in the end each node has one of each, and what
belongs to no node is gone."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.kinds import NODE_METRICS, NODE_SLOS, NODES
from tests.examples import examples
from tests.manager.broken_input.bench import ManagerBench, node

NAMES = ("a", "b", "c")
WHAT = ("add", "remove", "report", "delete metric", "delete slo", "wait", "wait long")
STEPS = st.lists(st.tuples(st.sampled_from(WHAT), st.sampled_from(NAMES)), min_size=5, max_size=25)


async def take(bench: ManagerBench, what: str, name: str) -> None:
    cluster = bench.cluster
    if what == "add" and cluster.found(NODES, name) is None:
        bench.add_node(name)
    elif what == "remove" and cluster.found(NODES, name) is not None:
        cluster.remove(NODES, name)
    elif what == "report":
        # Also by an agent that has not heard yet that its node is gone.
        bench.report(name)
    elif what == "delete metric" and cluster.found(NODE_METRICS, name) is not None:
        cluster.remove(NODE_METRICS, name)
    elif what == "delete slo" and cluster.found(NODE_SLOS, name) is not None:
        cluster.remove(NODE_SLOS, name)
    elif what.startswith("wait"):
        await bench.clock.advance(0.01 if what == "wait" else 20)


@settings(max_examples=examples(15))
@given(steps=STEPS)
def test_each_node_has_one_of_each_and_nobody_else(steps: list[tuple[str, str]]) -> None:
    async def scenario() -> None:
        bench = ManagerBench()
        bench.configure()
        async with bench.working():
            for what, name in steps:
                await take(bench, what, name)
            await bench.until_idle()
            nodes = {each["metadata"]["name"] for each in bench.cluster.all(NODES)}
            for kind in (NODE_METRICS, NODE_SLOS):
                assert {each["metadata"]["name"] for each in bench.cluster.all(kind)} == nodes
                assert all("spec" in each for each in bench.cluster.all(kind))
            for name in NAMES:
                assert (bench.node_resource.explanations.of(name) is not None) == (name in nodes)
            for name in nodes:
                bench.report(name, "20")
                await bench.until_offered(name, 45_000)

    asyncio.run(scenario())


def test_a_report_of_a_node_that_is_gone_is_removed_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bench = ManagerBench()
        bench.configure()
        bench.add_node("a")
        bench.report("a")
        bench.report("ghost", "1e30")
        with caplog.at_level(logging.WARNING):
            async with bench.working():
                assert bench.cluster.found(NODE_METRICS, "ghost") is None
                assert bench.offered("a") == 25_000
                bench.report("ghost")
                await bench.until_idle()
                assert bench.cluster.found(NODE_METRICS, "ghost") is None
        assert not caplog.records

    asyncio.run(scenario())


def test_a_node_that_is_made_anew_starts_anew() -> None:
    """What the old one offered is not what the new one offers."""

    async def scenario() -> None:
        bench = ManagerBench()
        bench.configure()
        bench.add_node("a")
        bench.report("a")
        async with bench.working():
            assert bench.offered("a") == 25_000
            bench.cluster.remove(NODES, "a")
            small = node("a")
            for part in ("capacity", "allocatable"):
                small["status"][part] = {"cpu": "10", "memory": "12G"}
            bench.cluster.put(NODES, small)
            await bench.until_idle()
            assert bench.offered("a") in (0, None)
            bench.report("a", "1")
            await bench.until_offered("a", 5_500)

    asyncio.run(scenario())
