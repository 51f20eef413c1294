"""NodeMetric and NodeSLO objects follow nodes and the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from koordinator.api.codec import decode_any
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODE_SLOS, NODES, Kind
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.nodeslo import NodeSLO
from koordinator.kube.interface import PatchType
from koordinator.manager.node_policy.controller import NodeMetricController, NodeSLOController
from tests.manager.controller_bench import SYSTEM, ControllerBench, controller_bench

NAME = "slo-controller-config"
BOTH: list[Kind[Any]] = [NODE_METRICS, NODE_SLOS]


@asynccontextmanager
async def working(made: ControllerBench) -> AsyncIterator[None]:
    async with made.working(NodeMetricController(made.context), NodeSLOController(made.context)):
        yield


async def add_node(made: ControllerBench, name: str = "n1", **metadata: Any) -> None:
    await made.client.create(NODES, {"metadata": {"name": name, **metadata}})


async def configure(made: ControllerBench, **data: str) -> None:
    await made.client.create(CONFIG_MAPS, {"metadata": {"name": NAME}, "data": data}, SYSTEM)


async def stored(made: ControllerBench, kind: Kind[Any], name: str = "n1") -> dict[str, Any]:
    found: dict[str, Any] = decode_any(await made.client.raw("GET", kind.path("", name)))
    return found


def is_there(_: object) -> bool:
    return True


@pytest.mark.parametrize("kind", BOTH)
def test_every_node_has_one(kind: Kind[Any]) -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made)
            async with working(made):
                assert (await made.once(kind, is_there)).metadata.name == "n1"

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", BOTH)
def test_it_goes_with_its_node(kind: Kind[Any]) -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made)
            async with working(made):
                await made.once(kind, is_there)
                await made.client.delete(NODES, "n1")
                await made.until_gone(kind, "n1")

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", BOTH)
def test_one_that_was_left_behind_is_deleted(kind: Kind[Any]) -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await made.client.create(kind, {"metadata": {"name": "gone"}, "spec": {}})
            async with working(made):
                await made.until_gone(kind, "gone")

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", BOTH)
def test_one_that_somebody_deletes_comes_back(kind: Kind[Any]) -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made)
            async with working(made):
                first = await made.once(kind, is_there)
                await made.client.delete(kind, "n1")
                await made.once(kind, lambda found: found.metadata.uid != first.metadata.uid)

    asyncio.run(scenario())


def test_without_colocation_the_agent_measures_by_the_defaults() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made)
            await configure(made, **{"colocation-config": '{"enable": false, "metricReportIntervalSeconds": 20}'})
            async with working(made):
                await made.once(NODE_METRICS, is_there)
                assert (await stored(made, NODE_METRICS))["spec"]["metricCollectPolicy"] == {
                    "aggregateDurationSeconds": 300,
                    "reportIntervalSeconds": 60,
                    "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
                    "nodeMemoryCollectPolicy": "usageWithoutPageCache",
                }

    asyncio.run(scenario())


def test_the_configuration_reaches_every_node() -> None:
    def interval(metric: NodeMetric) -> int | None:
        policy = metric.spec.metric_collect_policy
        return policy.report_interval_seconds if policy is not None else None

    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made)
            async with working(made):
                await made.once(NODE_METRICS, is_there)
                await configure(made, **{"colocation-config": '{"enable": true, "metricReportIntervalSeconds": 20}'})
                await made.once(NODE_METRICS, lambda metric: interval(metric) == 20)

    asyncio.run(scenario())


def test_a_group_of_nodes_has_its_own_policy() -> None:
    threshold = (
        '{"clusterStrategy": {"enable": true}, "nodeStrategies": [{"name": "big",'
        ' "nodeSelector": {"matchLabels": {"size": "big"}}, "cpuSuppressThresholdPercent": 50}]}'
    )

    def suppresses_at(slo: NodeSLO) -> int | None:
        strategy = slo.spec.resource_used_threshold_with_be
        return strategy.cpu_suppress_threshold_percent if strategy is not None else None

    async def scenario() -> None:
        async with controller_bench() as made:
            await configure(made, **{"resource-threshold-config": threshold})
            await add_node(made)
            await add_node(made, "n2", labels={"size": "big"})
            async with working(made):
                small = await made.once(NODE_SLOS, lambda slo: slo.metadata.name == "n1")
                big = await made.once(NODE_SLOS, lambda slo: slo.metadata.name == "n2")
                assert (suppresses_at(small), suppresses_at(big)) == (65, 50)
                await made.client.patch(NODES, "n1", {"metadata": {"labels": {"size": "big"}}}, PatchType.MERGE)
                await made.once(NODE_SLOS, lambda slo: slo.metadata.name == "n1" and suppresses_at(slo) == 50)

    asyncio.run(scenario())


def test_what_others_wrote_on_the_object_stays() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made)
            async with working(made):
                await made.once(NODE_SLOS, is_there)
                theirs = {
                    "metadata": {"annotations": {"their/own": "x"}},
                    "spec": {"cpuBurstStrategy": {"policy": "auto"}, "extensions": {"Object": {"theirs": {"a": 1}}}},
                }
                await made.client.patch(NODE_SLOS, "n1", theirs, PatchType.MERGE)
                await made.once(NODE_SLOS, lambda slo: slo.metadata.generation == 3)
                found = await stored(made, NODE_SLOS)
                assert found["metadata"]["annotations"]["their/own"] == "x"
                assert found["spec"]["extensions"]["Object"]["theirs"] == {"a": 1}
                assert found["spec"]["cpuBurstStrategy"]["policy"] == "none"

    asyncio.run(scenario())


def test_an_object_that_says_it_all_is_not_written_again() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made)
            async with working(made):
                before = await made.once(NODE_SLOS, is_there)
                await made.client.patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE)
                await add_node(made, "n2")
                await made.once(NODE_SLOS, lambda slo: slo.metadata.name == "n2")
                now = await made.client.get(NODE_SLOS, "n1")
                assert now.metadata.resource_version == before.metadata.resource_version

    asyncio.run(scenario())
