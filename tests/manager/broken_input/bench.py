"""All controllers at work over a cluster in memory, on a clock that moves when told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODES
from koordinator.api.quantity import parse_quantity
from koordinator.api.timestamps import format_time
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.reconciler import run_controllers
from koordinator.manager.controller_table import ALWAYS, BUILT
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.options import Options
from tests.in_memory_api import Document, InMemoryApi

SYSTEM = "koordinator-system"
CONFIG = "slo-controller-config"
BATCH_CPU = "kubernetes.io/batch-cpu"
COLOCATION = {"enable": True, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}
MANAGED = {"config.koordinator.sh/controller-managed": "true"}


class ManagerBench:
    """A replica that leads. ``clock`` is that of everything in it."""

    def __init__(self, cluster: InMemoryApi | None = None, options: Options | None = None) -> None:
        self.clock = ManualClock()
        # The server's own timers stand still: they would be most of what happens.
        self.cluster = cluster or InMemoryApi()
        self.metrics = Metrics()
        client, random = self.cluster.client(self.clock), Random(1)
        self.informers = InformerSet(client, clock=self.clock, random=random)
        self.events = EventBroadcaster(
            client, instance="test", program="koord-manager", clock=self.clock, random=random
        )
        self.context = ControllerContext(
            client, self.informers, self.events, options or Options(), self.metrics, self.clock, random
        )
        self.controllers = {name: make(self.context) for name, make in {**BUILT, **ALWAYS}.items()}

    @property
    def node_resource(self) -> NodeResourceController:
        found = self.controllers[NodeResourceController.name]
        assert isinstance(found, NodeResourceController)
        return found

    @asynccontextmanager
    async def working(self, limit: float | None = 60) -> AsyncIterator[None]:
        """``limit``: seconds of the machine."""
        async with asyncio.timeout(limit), asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(each)
                for each in (
                    self.events.run(),
                    self.informers.run(),
                    run_controllers(self.informers, self.controllers),
                )
            ]
            await self.until_idle()
            try:
                yield
            finally:
                for task in running:
                    task.cancel()

    async def until_idle(self) -> None:
        """Let everything happen that is due, and a second more."""
        for _ in range(10):
            await self.clock.advance(0.1)

    def configure(self, data: dict[str, Any] | None = None) -> None:
        """``data``: texts, or documents that become texts."""
        texts = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in (data or {"colocation-config": COLOCATION}).items()
        }
        self.cluster.put(CONFIG_MAPS, {"metadata": {"name": CONFIG, "namespace": SYSTEM}, "data": texts})

    def add_node(self, name: str, **metadata: Any) -> None:
        self.cluster.put(NODES, node(name, **metadata))

    def report(self, name: str, cpu: str = "40", **status: Any) -> None:
        """The node's agent says that the system uses ``cpu``."""
        stored = self.cluster.found(NODE_METRICS, name) or {}
        self.cluster.put(NODE_METRICS, {**stored, **node_metric(name, format_time(self.clock.now()), cpu, **status)})

    def offered(self, name: str, resource: str = BATCH_CPU) -> int | None:
        """What a node offers of batch CPU, in milli-CPU."""
        found = self.cluster.found(NODES, name)
        assert found is not None
        amount = found["status"]["allocatable"].get(resource)
        return None if amount is None else parse_quantity(amount).value

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def notes(self, reason: str, about: str) -> list[str]:
        """The texts of the events about an object."""
        return [
            event["note"]
            for event in self.cluster.all(EVENTS_V1)
            if event["reason"] == reason and event["regarding"]["name"] == about
        ]

    async def until_offered(self, name: str, amount: int | None, seconds: int = 120) -> None:
        """Let the clock go on until a node offers that."""
        for _ in range(seconds):
            if self.offered(name) == amount:
                return
            await self.clock.advance(1)
        why = self.node_resource.explanations.of(name)
        raise AssertionError(f"{name} offers {self.offered(name)}, not {amount}: {why}")


def node(name: str, **metadata: Any) -> Document:
    amounts = {"cpu": "100", "memory": "120G"}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name, **metadata},
        "spec": {},
        "status": {"capacity": dict(amounts), "allocatable": dict(amounts), "conditions": conditions},
    }


def node_metric(name: str, at: str, cpu: str = "40", **status: Any) -> Document:
    usage = {"resources": {"cpu": cpu, "memory": "10G"}}
    return {
        "metadata": {"name": name},
        "status": {"updateTime": at, "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}, **status},
    }


def pod(name: str, cpu: str = "1", node_name: str = "", **metadata: Any) -> Document:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1G"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": node_name, "containers": [container]},
        "status": {"phase": "Running" if node_name else "Pending"},
    }
