"""Nodes whose online pods suffer, on the embedded API: adapted, told of, and continued by whoever leads next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from koordinator.api.adaptive_slo import AdaptiveSLOState, read_state
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODE_SLOS, NODES
from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLO
from koordinator.base.metrics import Metrics
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from koordinator.manager.node_policy.controller import NodeSLOController
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.node_resource.explanations import explanation_document
from tests.manager.controller_bench import SYSTEM, ControllerBench, controller_bench
from tests.manager.node_resource.node_example import BATCH_CPU, example, make, offers, report

ADAPTIVE = {
    "enable": True, "steps": 2, "holdSeconds": 60, "recoverSeconds": 120, "cpuReclaimFloorPercent": 45,
    "cpuSuppressFloorPercent": 45, "scoreFloorPercent": 20,
}  # fmt: skip
FINDING = {
    "indicator": "cpu-pressure", "since": "2026-01-01T00:00:00Z", "value": 42.1, "normal": 3.2, "limit": 9.9,
    "suspects": [{"pod": "default/job", "qos": "BE", "correlation": 0.9, "confidence": 0.8, "advice": "suppress"}],
}  # fmt: skip
WHY = "cpu-pressure of pod default/a is 42.1, above 9.9, with default/job as the suspect"


async def switch(made: ControllerBench, **fields: Any) -> None:
    text = json.dumps({"clusterStrategy": ADAPTIVE | fields})
    name, patch = made.context.options.slo_config_name, {"data": {"adaptive-slo-config": text}}
    await made.client.patch(CONFIG_MAPS, name, patch, PatchType.MERGE, SYSTEM)


async def suffer(made: ControllerBench, seconds: float, *findings: dict[str, Any]) -> None:
    """Time passes, then the node's agent reports what pod a suffers from."""
    await made.clock.advance(seconds)
    await report(made, {"a": ("11", "11G"), "b": ("22", "22G")})
    pods: list[dict[str, Any]] = [
        {"namespace": "default", "name": "a", "podUsage": {"resources": {"cpu": "11", "memory": "11G"}},
         "extensions": {"Object": {"interference": list(findings)}}, "priority": "koord-prod"},
        {"namespace": "default", "name": "b", "podUsage": {"resources": {"cpu": "22", "memory": "22G"}},
         "priority": "koord-prod"},
    ]  # fmt: skip
    await made.client.patch(NODE_METRICS, "n1", {"status": {"podsMetric": pods}}, PatchType.MERGE, subresource="status")


def state(node: Node) -> AdaptiveSLOState:
    return read_state(node.metadata.annotations) or AdaptiveSLOState()


def at_level(level: int) -> Callable[[Node], bool]:
    return lambda node: state(node).level == level


def suppresses_at(percent: int) -> Callable[[NodeSLO], bool]:
    def look(found: NodeSLO) -> bool:
        threshold = found.spec.resource_used_threshold_with_be
        return threshold is not None and threshold.cpu_suppress_threshold_percent == percent

    return look


@asynccontextmanager
async def adapting() -> AsyncIterator[tuple[ControllerBench, NodeResourceController]]:
    """The example with both controllers at work, which adapt nodes."""
    async with controller_bench() as made:
        await example(made)
        await switch(made)
        controller = make(made)
        async with made.working(controller, NodeSLOController(made.context)):
            await made.once(NODES, offers(BATCH_CPU, 25_000))
            yield made, controller


def test_a_node_whose_pods_suffer_lends_less_and_suppresses_earlier() -> None:
    async def scenario() -> None:
        async with adapting() as (made, _):
            await suffer(made, 1, FINDING)
            node = await made.once(NODES, at_level(1))
            assert (state(node).score_percent, state(node).reason) == (60, WHY)
            # 65 percent of 100 CPUs were lent from, now it is 55.
            await made.once(NODES, offers(BATCH_CPU, 15_000))
            await made.once(NODE_SLOS, suppresses_at(55))

    asyncio.run(scenario())


def test_a_calm_node_comes_back_and_both_are_events() -> None:
    async def scenario() -> None:
        async with adapting() as (made, _):
            await suffer(made, 1, FINDING)
            await made.once(NODES, at_level(1))
            await suffer(made, 1)
            await made.until_known(NODES, at_level(1))
            await made.clock.advance(200)
            await made.once(NODES, at_level(0))
            await made.once(NODES, offers(BATCH_CPU, 25_000))
            await made.once(NODE_SLOS, suppresses_at(65))
            assert await made.events.flush(5) == 0
            body = json.loads(await made.client.raw("GET", EVENTS_V1.path("default")))
            found = {each["reason"]: each["note"] for each in body["items"] if each["regarding"]["kind"] == "Node"}
            assert found["SLOTightened"] == f"step 1 of 2: {WHY}"
            assert found["SLORelaxed"] == "back to step 0 of 2: the node has been calm"
            sample = made.metrics.registry.get_sample_value
            assert sample("koord_manager_slo_adaptation_steps_total", {"direction": "tighten"}) == 1
            assert sample("koord_manager_slo_adaptation_steps_total", {"direction": "relax"}) == 1
            assert sample("koord_manager_adapted_nodes", {"level": "1"}) is None

    asyncio.run(scenario())


def test_the_switch_takes_everything_back() -> None:
    async def scenario() -> None:
        async with adapting() as (made, _):
            await suffer(made, 1, FINDING)
            await made.once(NODES, at_level(1))
            await switch(made, enable=False)
            node = await made.once(NODES, at_level(0))
            assert read_state(node.metadata.annotations) is None
            await made.once(NODES, offers(BATCH_CPU, 25_000))
            await made.once(NODE_SLOS, suppresses_at(65))

    asyncio.run(scenario())


def test_the_next_leader_continues() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await example(made)
            await switch(made)
            first, second = make(made), NodeResourceController(replace(made.context, metrics=Metrics()))
            async with made.working():
                for controller, level in ((first, 1), (second, 2)):
                    task = asyncio.create_task(controller.run())
                    await suffer(made, 61, FINDING)
                    await made.once(NODES, at_level(level))
                    await made.until_known(NODES, at_level(level))
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_the_explanation_says_what_is_lowered_and_what_brings_it_back() -> None:
    async def scenario() -> None:
        async with adapting() as (made, controller):
            await suffer(made, 1, FINDING)
            await made.until_known(NODES, at_level(1))
            explanation = controller.explain("n1")
            assert explanation is not None
            found = explanation_document("n1", explanation).adaptation
            assert found is not None
            assert (found.level, found.steps, found.reason) == (1, 2, WHY)
            assert found.back_at is not None
            assert found.back_at > found.since
            lowered = {each.name: (each.configured, each.now) for each in found.lowered}
            assert lowered["cpuSuppressThresholdPercent"] == (65, 55)
            assert lowered["cpuReclaimThresholdPercent"] == (65, 55)
            assert lowered["scorePercent"] == (100, 60)

    asyncio.run(scenario())
