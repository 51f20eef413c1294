"""Abnormal nodes from the fault to the mark and back: simulated nodes report, koord-manager judges, people ask."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import aiohttp
import pytest
from rich.console import Console

from koordinator.api.codec import convert
from koordinator.api.kinds import CONFIG_MAPS, NODES, PODS
from koordinator.api.node import Node, NodeCondition
from koordinator.api.node_explanation import OvercommitExplanation
from koordinator.cli.explain_node import print_overcommit
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario import parse_scenario
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION, Fault
from koordinator.kube.interface import PatchType
from koordinator.kube.serving import HealthServer
from koordinator.manager.node_policy.controller import NodeMetricController
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.node_resource.explanations import PATH, explain_handler
from koordinator.model.overcommit.node_report import NODE_REPORTS
from tests.manager.controller_bench import SYSTEM, ControllerBench, controller_bench

BATCH: Final = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
MID: Final = ("kubernetes.io/mid-cpu", "kubernetes.io/mid-memory")
SOUND: Final = "sound-0"
FAULTY: Final = "faulty-0"
CONFIGURATION: Final = """{
  "enable": true, "degradeTimeMinutes": 1, "midUnallocatedPercent": 50, "updateTimeThresholdSeconds": 1,
  "extensions": {"abnormalNodes": {
    "missingAfterSeconds": 5, "raiseAfterSeconds": 5, "clearAfterSeconds": 5, "frozenAfterSeconds": 12
  }}
}"""
SCENARIO: Final = """
nodeGroups: [{name: sound}, {name: faulty}]
timing: {speed: 60}
"""
POD: Final[dict[str, Any]] = {
    "metadata": {"name": "web"},
    "spec": {
        "nodeName": FAULTY,
        "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}],
    },
}
EXPECTED: Final = {
    Fault.AGENT_MISSING: ("AgentMissing", "no agent reports from the node: is koordlet running there?"),
    Fault.AGENT_STOPPED: ("MetricsStopped", "the last report of the node's agent is more than 1 minute old"),
    Fault.USAGE_ABOVE_CAPACITY: (
        "UsageAboveCapacity",
        "the node is said to use more than it has, for 5 seconds and more",
    ),
    Fault.NEGATIVE_READINGS: ("NegativeUsage", "some usage is said to be below zero, for 5 seconds and more"),
    Fault.FROZEN_READINGS: ("FrozenReadings", "all readings have been the same for 12 seconds and more"),
    Fault.CLOCK_AHEAD: (
        "ReportFromTheFuture",
        "reports bear a time that has not come yet: the node's clock is wrong",
    ),
    Fault.CLOCK_BEHIND: (
        "ReportFromThePast",
        "reports arrive, but bear a time of more than 1 minute ago: the node's clock is wrong",
    ),
}


class AbnormalCluster:
    """A manager's controllers and two simulated nodes on one clock; an hour of simulated time is a minute of it."""

    def __init__(self, made: ControllerBench, controller: NodeResourceController) -> None:
        self.made = made
        self._controller = controller

    def node(self, name: str = FAULTY) -> Node:
        """As the manager sees it."""
        found = self.made.informers.informer(NODES).get(name)
        assert found is not None
        return found

    def mark(self, name: str = FAULTY) -> NodeCondition | None:
        return next((each for each in self.node(name).status.conditions if each.type == "ColocationAbnormal"), None)

    def is_marked(self) -> bool:
        found = self.mark()
        return found is not None and found.status == "True"

    def offers(self, name: str = FAULTY) -> set[str]:
        return {*BATCH, *MID} & set(self.node(name).status.allocatable)

    def is_well(self) -> bool:
        return not self.is_marked() and len(self.offers()) == 4

    async def until(self, holds: Callable[[], bool], seconds: int) -> None:
        """Let time pass until it holds. The sound node's reports show that the cluster has kept up with the clock."""
        for _ in range(seconds):
            if holds():
                return
            await self.made.clock.advance(1)
            now = self.made.clock.now()
            await self.made.until_known(
                NODE_REPORTS,
                lambda metric, now=now: (  # type: ignore[misc]
                    metric.metadata.name == SOUND
                    and metric.status.update_time is not None
                    and (now - metric.status.update_time).total_seconds() <= 2
                ),
            )
        raise AssertionError(f"not so within {seconds} seconds: {self.node().status}")

    async def say(self, fault: Fault | None) -> None:
        annotations = {"metadata": {"annotations": {FAULT_ANNOTATION: fault}}}
        await self.made.client.patch(NODES, FAULTY, annotations, PatchType.MERGE)

    def counted(self, reason: str) -> float | None:
        return self.made.metrics.registry.get_sample_value("koord_manager_abnormal_nodes", {"reason": reason})

    async def explained(self, name: str = FAULTY) -> tuple[dict[str, Any], str]:
        """What the manager answers, and what a person reads of it."""
        server = HealthServer(self.made.metrics, host="127.0.0.1", port=0)
        server.add_route(PATH, explain_handler(self._controller.explain))
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}/explain/node/{name}"
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                document: dict[str, Any] = await response.json()
        finally:
            await server.stop()
        console = Console(file=io.StringIO(), width=160)
        print_overcommit(convert(document, OvercommitExplanation), console)
        assert isinstance(console.file, io.StringIO)
        return document, console.file.getvalue()


@asynccontextmanager
async def a_cluster(faults: str = "") -> AsyncIterator[AbnormalCluster]:
    async with controller_bench() as made:
        data = {"colocation-config": CONFIGURATION}
        await made.client.create(CONFIG_MAPS, {"metadata": {"name": "slo-controller-config"}, "data": data}, SYSTEM)
        resources = NodeResourceController(made.context)
        fleet = Fleet(made.client, parse_scenario(SCENARIO + faults, "test"), clock=made.clock, random=Random(1))
        async with made.working(NodeMetricController(made.context), resources, fleet):
            while not fleet.nodes:
                await made.clock.advance(0.5)
            await made.client.create(PODS, POD, "default")
            yield AbnormalCluster(made, resources)


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_fault_is_marked_and_its_end_restores_everything(fault: Fault) -> None:
    reason, message = EXPECTED[fault]

    async def scenario() -> None:
        async with a_cluster() as cluster:
            await cluster.until(cluster.is_well, 20)
            await cluster.say(fault)
            await cluster.until(cluster.is_marked, 90)
            await cluster.until(lambda: not cluster.offers(), 90)
            found = cluster.mark()
            assert found is not None
            assert (found.reason, found.message) == (reason, message)
            assert (cluster.counted(reason), cluster.offers(SOUND)) == (1, {*BATCH, *MID})
            document, text = await cluster.explained()
            assert document["abnormal"] == [{"reason": reason, "message": message}]
            assert found.last_transition_time is not None
            since = f"{found.last_transition_time:%Y-%m-%dT%H:%M:%SZ}"
            assert document["abnormalSince"] == since
            assert {each["resource"] for each in document["amounts"] if each["reset"]} == {*BATCH, *MID}
            assert f"abnormal since {since}: {message} ({reason})" in text
            assert "kubernetes.io/batch-cpu is not offered: " in text

            await cluster.say(None)
            await cluster.until(cluster.is_well, 60)
            found = cluster.mark()
            assert found is not None
            assert (found.status, found.reason) == ("False", "ReadingsAreSound")
            assert cluster.counted(reason) == 0
            document, text = await cluster.explained()
            assert document["abnormal"] == []
            assert "abnormal" not in text
            assert cluster.mark(SOUND) is None

    asyncio.run(scenario())


def test_a_plan_makes_a_node_abnormal_that_never_reported() -> None:
    async def scenario() -> None:
        faults = f"faults: [{{fault: agentMissing, nodes: [{FAULTY}], lasts: 20m}}]"
        async with a_cluster(faults) as cluster:
            await cluster.until(cluster.is_marked, 15)
            found = cluster.mark()
            assert found is not None
            assert found.reason == "AgentMissing"
            assert cluster.offers() == set()
            await cluster.until(cluster.is_well, 60)

    asyncio.run(scenario())
