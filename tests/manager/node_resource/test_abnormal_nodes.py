"""Abnormal nodes on the embedded API: marked, told of once, counted, and remembered by whoever leads next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODES
from koordinator.api.node import Node, NodeCondition
from koordinator.api.timestamps import format_time
from koordinator.base.metrics import Metrics
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.model.overcommit.node_report import NODE_REPORTS
from tests.manager.controller_bench import SYSTEM, ControllerBench, controller_bench
from tests.manager.node_resource.node_example import add_node, example, make, offers, report, working
from tests.waiting import wait_for

LONG = timedelta(minutes=15, seconds=2).total_seconds()
Event = dict[str, Any]


def mark(node: Node, name: str = "n1") -> NodeCondition | None:
    found = (each for each in node.status.conditions if each.type == "ColocationAbnormal")
    return next(found, None) if node.metadata.name == name else None


def is_marked(node: Node) -> bool:
    found = mark(node)
    return found is not None and found.status == "True"


def is_forgiven(node: Node) -> bool:
    found = mark(node)
    return found is not None and found.status == "False"


async def marked(made: ControllerBench) -> NodeCondition:
    """The mark of the example's node, once it has one."""
    found = mark(await made.once(NODES, is_marked))
    assert found is not None
    return found


async def silence(made: ControllerBench) -> NodeCondition:
    await made.clock.advance(LONG)
    return await marked(made)


async def reports(made: ControllerBench, count: int, start: int = 1) -> None:
    """One a minute, of which the controller has seen each."""
    for number in range(start, start + count):
        await made.clock.advance(60)
        await report(made, {"a": (f"{number}m", "11G"), "b": ("22", "22G")})
        await seen(made, made.clock.now())
        await made.clock.advance(0)


async def seen(made: ControllerBench, at: datetime) -> None:
    await made.until_known(NODE_REPORTS, lambda metric: metric.status.update_time == at)


async def events(made: ControllerBench, count: int = 1) -> list[Event]:
    """Those about nodes, oldest first, once there are so many."""
    found: list[Event] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            assert await made.events.flush(5) == 0
            body = json.loads(await made.client.raw("GET", EVENTS_V1.path("default")))
            found = [each for each in body["items"] if each["regarding"]["kind"] == "Node"]
    return sorted(found, key=lambda each: str(each["eventTime"]))


def counted(made: ControllerBench, reason: str) -> float | None:
    return made.metrics.registry.get_sample_value("koord_manager_abnormal_nodes", {"reason": reason})


def turned(made: ControllerBench, to: str, reason: str = "MetricsStopped") -> float | None:
    name = "koord_manager_abnormal_node_transitions_total"
    return made.metrics.registry.get_sample_value(name, {"reason": reason, "to": to})


def test_a_node_whose_agent_is_silent_is_marked() -> None:
    async def scenario() -> None:
        async with working() as (made, controller):
            condition = await silence(made)
            assert condition.reason == "MetricsStopped"
            health = controller.explanations.of("n1").health
            assert [each.message for each in health.findings] == [condition.message]
            assert format_time(health.changed_at) == format_time(condition.last_transition_time or datetime.min)

    asyncio.run(scenario())


def test_a_mark_is_an_event_once() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            await silence(made)
            await made.clock.advance(1200)
            (event,) = await events(made)
            assert (event["type"], event["reason"]) == ("Warning", "ColocationAbnormal")
            assert event["note"] == ("MetricsStopped: the last report of the node's agent is more than 15 minutes old")
            node = await made.client.get(NODES, "n1")
            assert event["regarding"]["uid"] == node.metadata.uid
            assert "series" not in event or event["series"] is None

    asyncio.run(scenario())


def test_a_recovery_takes_the_mark_off_and_is_reported() -> None:
    async def scenario() -> None:
        async with working() as (made, controller):
            await silence(made)
            await reports(made, 7)
            found = mark(await made.once(NODES, is_forgiven))
            assert found is not None
            assert found.reason == "ReadingsAreSound"
            assert controller.explanations.of("n1").health is None
            _, second = await events(made, 2)
            assert (second["type"], second["reason"]) == ("Normal", "ColocationNormal")
            assert second["note"].startswith("MetricsStopped is over: ")

    asyncio.run(scenario())


def test_capacity_is_offered_again_with_the_first_report_and_the_mark_stays_a_while() -> None:
    async def scenario() -> None:
        async with working() as (made, controller):
            await silence(made)
            await made.once(NODES, offers("kubernetes.io/batch-cpu", None))
            await reports(made, 2)
            assert controller.explanations.of("n1").health.well_since is not None
            node = await made.once(NODES, lambda node: "kubernetes.io/batch-cpu" in node.status.allocatable)
            assert is_marked(node)

    asyncio.run(scenario())


def test_abnormal_nodes_are_counted_by_reason() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            assert (counted(made, "MetricsStopped"), turned(made, "abnormal")) == (0, None)
            await silence(made)
            await wait_for(lambda: turned(made, "abnormal") == 1)
            assert counted(made, "MetricsStopped") == 1
            assert counted(made, "AgentMissing") == 0
            await reports(made, 7)
            await made.once(NODES, is_forgiven)
            await wait_for(lambda: turned(made, "normal") == 1)
            assert counted(made, "MetricsStopped") == 0
            assert turned(made, "abnormal") == 1

    asyncio.run(scenario())


def test_switching_colocation_off_takes_the_mark_off_an_abnormal_node() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            await silence(made)
            await configured(made, '{"enable": false}')
            node = await made.once(NODES, is_forgiven)
            found = mark(node)
            assert found is not None
            assert found.reason == "NotChecked"

    asyncio.run(scenario())


def test_the_search_alone_can_be_switched_off() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            await configured(made, '{"enable": true, "extensions": {"abnormalNodes": {"enable": false}}}')
            await made.clock.advance(LONG)
            node = await made.once(NODES, offers("kubernetes.io/batch-cpu", None))
            assert mark(node) is None

    asyncio.run(scenario())


async def configured(made: ControllerBench, text: str) -> None:
    name = made.context.options.slo_config_name
    patch = {"data": {"colocation-config": text}}
    await made.client.patch(CONFIG_MAPS, name, patch, PatchType.MERGE, SYSTEM)


@asynccontextmanager
async def leading(controller: NodeResourceController) -> AsyncIterator[None]:
    """A term of its own."""
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_the_next_leader_neither_forgives_nor_forgets_nor_reports_again() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await example(made)
            first, second = make(made), NodeResourceController(replace(made.context, metrics=Metrics()))
            async with made.working():
                async with leading(first):
                    await made.once(NODES, offers("kubernetes.io/batch-cpu", 25_000))
                    before = await silence(made)
                    await made.until_known(NODES, is_marked)
                assert first.explanations.of("n1") is None
                async with leading(second):
                    await made.clock.advance(120)
                    assert mark(await made.client.get(NODES, "n1")) == before
                    found = second.explanations.of("n1")
                    assert found is not None
                    assert found.health is not None
                    assert found.health.changed_at == before.last_transition_time
                assert len(await events(made)) == 1

    asyncio.run(scenario())


def test_a_node_made_anew_under_the_same_name_is_another_node() -> None:
    async def scenario() -> None:
        async with working() as (made, controller):
            await silence(made)
            await made.client.delete(NODES, "n1")
            await made.client.delete(NODE_METRICS, "n1")
            await add_node(made)
            node = await made.client.get(NODES, "n1")
            await made.until_known(NODES, lambda found: found.metadata.uid == node.metadata.uid)
            await made.clock.advance(60)
            assert controller.explanations.of("n1").health is None
            assert mark(await made.client.get(NODES, "n1")) is None

    asyncio.run(scenario())


def test_a_cordoned_node_is_checked_like_any_other() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            await made.client.patch(NODES, "n1", {"spec": {"unschedulable": True}}, PatchType.MERGE)
            assert (await silence(made)).reason == "MetricsStopped"

    asyncio.run(scenario())
