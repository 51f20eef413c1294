"""The specification's example of a node, with the controller at work on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODES, PODS
from koordinator.api.node import Node
from koordinator.api.timestamps import format_time
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.options import Options
from tests.manager.controller_bench import SYSTEM, ControllerBench, controller_bench

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
CONFIGURATION = '{"enable": true, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}'
G = 10**9


def make(made: ControllerBench) -> NodeResourceController:
    return NodeResourceController(made.context)


async def configure(made: ControllerBench, text: str = CONFIGURATION) -> None:
    name = made.context.options.slo_config_name
    await made.client.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"colocation-config": text}}, SYSTEM)


async def add_node(made: ControllerBench, name: str = "n1", **metadata: Any) -> None:
    amounts = {"cpu": "100", "memory": "120G"}
    await made.client.create(
        NODES, {"metadata": {"name": name, **metadata}, "status": {"capacity": amounts, "allocatable": amounts}}
    )


async def add_pod(made: ControllerBench, name: str, cpu: str, memory: str, node: str = "n1") -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    metadata = {"name": name, "labels": {"koordinator.sh/qosClass": "LS"}}
    await made.client.create(
        PODS, {"metadata": metadata, "spec": {"nodeName": node, "containers": [container]}}, "default"
    )


def usage(cpu: str, memory: str) -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}}


async def report(made: ControllerBench, pods: dict[str, tuple[str, str]], name: str = "n1") -> None:
    """As a node's agent does it: every reading differs from the last one's."""
    metric = {"metadata": {"name": name}, "spec": {}}
    try:
        await made.client.create(NODE_METRICS, metric)
    except ApiStatusError as error:
        if not error.is_already_exists:
            raise
    status = {
        "updateTime": format_time(made.clock.now()),
        "nodeMetric": {"nodeUsage": usage("40", "45G"), "systemUsage": usage("7", "12G")},
        "podsMetric": [
            {"namespace": "default", "name": pod, "podUsage": usage(*used), "priority": "koord-prod"}
            for pod, used in pods.items()
        ],
    }
    await made.client.patch(NODE_METRICS, name, {"status": status}, PatchType.MERGE, subresource="status")


async def example(made: ControllerBench) -> None:
    """The specification's: 100 - 35 - 7 - 33 of 100 CPUs, 120 - 42 - 12 - 33 of 120G."""
    await configure(made)
    await add_node(made)
    await add_pod(made, "a", "20", "20G")
    await add_pod(made, "b", "20", "40G")
    await report(made, {"a": ("11", "11G"), "b": ("22", "22G")})


def offers(resource: str, amount: int | None) -> Callable[[Node], bool]:
    def look(node: Node) -> bool:
        found = node.status.allocatable.get(resource)
        return found is None if amount is None else found is not None and found.value == amount

    return look


@asynccontextmanager
async def working(options: Options | None = None) -> AsyncIterator[tuple[ControllerBench, Any]]:
    """The example, with its controller at work and its first response written."""
    async with controller_bench(options) as made:
        await example(made)
        controller = make(made)
        async with made.working(controller):
            await made.once(NODES, offers(BATCH_CPU, 25_000))
            yield made, controller
