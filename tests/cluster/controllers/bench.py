"""The workload controllers at work on an API server in memory, on a clock of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from koordinator.api.document import Document
from koordinator.api.kinds import EVENTS, PODS
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.cluster.controllers.context import ControllerContext, ControllerMaker
from koordinator.cluster.controllers.deployment.controller import DeploymentController
from koordinator.cluster.controllers.replica_set.controller import ReplicaSetController
from koordinator.cluster.controllers.workloads import DEPLOYMENTS, REPLICA_SETS, Deployment, ReplicaSet
from koordinator.kube.client import KubeClient
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import PatchType
from koordinator.kube.reconciler import Reconcilers
from tests.cluster.controllers.objects import LABELS, template
from tests.in_memory_api import InMemoryApi
from tests.waiting import once, wait_for

_ALL: tuple[ControllerMaker, ...] = (DeploymentController, ReplicaSetController)


class Bench:
    """``clock`` is the controllers'; everything else goes by the real one."""

    def __init__(self, api: InMemoryApi, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.clock = ManualClock(SystemClock().now())
        self.informers = InformerSet(client, clock=SystemClock(), random=Random(1))
        self.events = EventBroadcaster(client, host="test", clock=SystemClock(), random=Random(1))
        self.reconcilers = Reconcilers(self.clock, Metrics(), "reconciled_total")
        self.context = ControllerContext(client, self.informers, self.events, self.reconcilers, self.clock, Random(1))

    async def add_replica_set(self, replicas: int, name: str = "web", **spec: Any) -> ReplicaSet:
        return await self.client.create(REPLICA_SETS, _workload(name, replicas, spec), "default")

    async def add_deployment(self, replicas: int, name: str = "web", **spec: Any) -> Deployment:
        return await self.client.create(DEPLOYMENTS, _workload(name, replicas, spec), "default")

    async def add_pod(self, name: str, labels: dict[str, str] | None = None, **metadata: Any) -> Pod:
        body = {**template(), "metadata": {"name": name, "labels": labels or LABELS, **metadata}}
        return await self.client.create(PODS, body, "default")

    async def change(self, kind: Any, spec: Document, name: str = "web") -> None:
        await self.client.patch(kind, name, {"spec": spec}, PatchType.MERGE, "default")

    async def make_ready(self, pod: Pod) -> None:
        """As the kubelet of its node reports it."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        await self.client.patch(PODS, pod.metadata.name, status, PatchType.STRATEGIC, "default", subresource="status")

    async def once(self, kind: Any, holds: Callable[[Any], bool]) -> Any:
        """The first object that is so, as soon as there is one."""
        return await once(self.client, kind, holds, "default")

    async def pods(self, count: int) -> list[Pod]:
        """All pods, as soon as there are ``count`` of them and the controllers rest."""
        await wait_for(lambda: len(self.api.all(PODS)) == count)
        await self.rest()
        pods = (await self.client.list(PODS, "default")).items
        assert len(pods) == count
        return list(pods)

    async def rest(self) -> None:
        """Until the controllers know all that was written, and have nothing to do."""
        await wait_for(lambda: self.reconcilers.in_hand == 0 and self._is_seen())

    def _is_seen(self) -> bool:
        return all(self._knows(informer) for informer in self.informers)

    def _knows(self, informer: Any) -> bool:
        there = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in self.api.all(informer.kind)}
        return there == {each.metadata.name: each.metadata.resource_version for each in informer.list()}

    async def notes(self, reason: str, count: int) -> list[str]:
        """The texts of the events with this reason, as soon as there are ``count``."""

        def found() -> list[str]:
            return [event["message"] for event in self.api.all(EVENTS) if event["reason"] == reason]

        await wait_for(lambda: len(found()) >= count)
        return found()


def _workload(name: str, replicas: int, spec: Document) -> Document:
    given = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template(), **spec}
    return {"metadata": {"name": name}, "spec": given}


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """On an API server in memory; no controller works yet."""
    async with InMemoryApi(SystemClock()).running() as api:
        client = api.client()
        try:
            yield Bench(api, client)
        finally:
            await client.close()


@asynccontextmanager
async def working(made: Bench, *makers: ControllerMaker) -> AsyncIterator[None]:
    """Run controllers, all unless some are named, from the moment at which their caches are in sync."""
    controllers = [make(made.context) for make in makers or _ALL]
    async with made.informers.started(20), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in (made.events, *controllers)]
        try:
            yield
        finally:
            for task in running:
                task.cancel()


def run(scenario: Callable[[Bench], Any]) -> None:
    """Run ``scenario`` with all controllers at work."""

    async def inside() -> None:
        async with asyncio.timeout(60), bench() as made, working(made):
            await scenario(made)

    asyncio.run(inside())
