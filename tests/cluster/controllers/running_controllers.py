"""Workload controllers over an API server in memory, and what a kubelet would write about their pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from koordinator.api.kinds import EVENTS, PODS, Kind
from koordinator.api.meta import Object
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.cluster.controllers.context import ControllerContext, ControllerMaker
from koordinator.cluster.controllers.workloads import DEPLOYMENTS, REPLICA_SETS, Deployment, ReplicaSet
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.reconciler import Reconcilers, run_controllers
from tests.cluster.controllers.objects import LABELS, template
from tests.in_memory_api import InMemoryApi
from tests.waiting import once, wait_for

Document = dict[str, Any]
T = TypeVar("T", bound=Object)


def asynchronous(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is a coroutine."""

    def run() -> None:
        asyncio.run(test())

    return run


class Cluster:
    """An API server in memory with controllers that run; objects are in the namespace ``default``."""

    def __init__(self, api: InMemoryApi, context: ControllerContext, watches: Mapping[str, asyncio.Task[None]]) -> None:
        """``watches`` keep the caches of the controllers current, by the plural of the kind."""
        self.api = api
        self.context = context
        self.client: Client = api.client()
        """Somebody else's: what it writes is not in the caches of the controllers at once."""
        self._watches = watches

    @property
    def clock(self) -> ManualClock:
        """That of the server and of the controllers."""
        assert isinstance(self.api.clock, ManualClock)
        return self.api.clock

    def freeze_cache(self, kind: Kind[Any]) -> None:
        """From now on the controllers see no change of this kind."""
        self._watches[kind.plural].cancel()

    async def create(self, kind: Kind[Any], name: str, spec: Document, **metadata: Any) -> Document:
        await self.client.create(kind, {"metadata": {"name": name, **metadata}, "spec": spec}, "default")
        return self.api.document(kind, name, "default")

    async def add_replica_set(self, replicas: int, name: str = "web", **spec: Any) -> ReplicaSet:
        return await self.client.create(REPLICA_SETS, _workload(name, replicas, spec), "default")

    async def add_deployment(self, replicas: int, name: str = "web", **spec: Any) -> Deployment:
        return await self.client.create(DEPLOYMENTS, _workload(name, replicas, spec), "default")

    async def add_pod(self, name: str, labels: dict[str, str] | None = None, **metadata: Any) -> Pod:
        body = {**template(), "metadata": {"name": name, "labels": labels or LABELS, **metadata}}
        return await self.client.create(PODS, body, "default")

    async def change_spec(self, kind: Kind[Any], spec: Document, name: str = "web") -> None:
        await self.patch(kind, name, {"spec": spec})

    async def patch(self, kind: Kind[Any], name: str, patch: Document) -> None:
        await self.client.patch(kind, name, patch, PatchType.MERGE, "default")

    async def until(self, kind: Kind[Any], name: str, holds: Callable[[Document], bool]) -> Document:
        """Wait until ``holds`` of the object, and return it."""
        found: list[Document] = []

        def is_there() -> bool:
            document = self.api.found(kind, name, "default")
            found[:] = [document] if document is not None else []
            return document is not None and holds(document)

        try:
            await wait_for(is_there)
        except TimeoutError:
            raise AssertionError(f"{kind.name} {name} is {found}") from None
        return found[0]

    async def once(self, kind: Kind[T], holds: Callable[[T], bool]) -> T:
        """The first object that is so, as soon as there is one."""
        return await once(self.client, kind, holds, "default")

    async def all_pods(self, count: int) -> list[Pod]:
        """All pods, as soon as there are ``count`` of them and the controllers rest."""
        await wait_for(lambda: len(self.api.all(PODS)) == count)
        await self.rest()
        pods = (await self.client.list(PODS, "default")).items
        assert len(pods) == count
        return list(pods)

    async def rest(self) -> None:
        """Until the controllers know all that was written, and have nothing to do."""
        await wait_for(lambda: self.context.reconcilers.in_hand == 0 and self._is_seen())

    def _is_seen(self) -> bool:
        return all(self._knows(informer) for informer in self.context.informers)

    def _knows(self, informer: Informer[Any]) -> bool:
        there = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in self.api.all(informer.kind)}
        return there == {each.metadata.name: each.metadata.resource_version for each in informer.list()}

    async def pods(self, count: int) -> list[Document]:
        """Wait until there are so many pods that have not ended; return them by name."""
        await wait_for(lambda: len(self.live_pods()) == count)
        return self.live_pods()

    def live_pods(self) -> list[Document]:
        """The pods that have not ended and are not being deleted."""
        pods = (pod for pod in self.api.all(PODS) if "deletionTimestamp" not in pod["metadata"])
        live = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        return sorted(live, key=lambda pod: str(pod["metadata"]["name"]))

    async def set_phase(self, pod: Document, phase: str, **status: Any) -> None:
        """What the kubelet reports of a pod."""
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        patch = {"status": {"phase": phase, "conditions": [ready], **status}}
        name = pod["metadata"]["name"]
        await self.client.patch(PODS, name, patch, PatchType.MERGE, "default", subresource="status")

    async def make_ready(self, pod: Pod) -> None:
        """As the kubelet of its node reports it."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        await self.client.patch(PODS, pod.metadata.name, status, PatchType.STRATEGIC, "default", subresource="status")

    async def notes(self, reason: str, count: int) -> list[str]:
        """The texts of the events with this reason, as soon as there are ``count``."""

        def found() -> list[str]:
            return [event["message"] for event in self.api.all(EVENTS) if event["reason"] == reason]

        await wait_for(lambda: len(found()) >= count)
        return found()

    async def event(self, reason: str) -> Document:
        """Wait for an event with this reason."""
        await wait_for(lambda: any(event.get("reason") == reason for event in self.api.all(EVENTS)))
        return next(event for event in self.api.all(EVENTS) if event.get("reason") == reason)


def _workload(name: str, replicas: int, spec: Document) -> Document:
    given = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template(), **spec}
    return {"metadata": {"name": name}, "spec": given}


@asynccontextmanager
async def running_controllers(*makers: ControllerMaker, api: InMemoryApi | None = None) -> AsyncIterator[Cluster]:
    """Run the controllers that ``makers`` make around the block. With ``api``, on what is there already."""
    api = api or InMemoryApi()
    client, clock, random = api.client(), api.clock, Random(1)
    informers = InformerSet(client, clock=clock, random=random)
    events = EventBroadcaster(client, host="test", clock=clock, random=random)
    context = ControllerContext(
        client=client,
        informers=informers,
        events=events,
        reconcilers=Reconcilers(clock, Metrics(), "reconciled_total"),
        clock=clock,
        random=random,
    )
    controllers = {str(position): make(context) for position, make in enumerate(makers)}
    async with asyncio.TaskGroup() as tasks:
        watches = {informer.kind.plural: tasks.create_task(informer.run()) for informer in informers}
        running = [tasks.create_task(events.run()), tasks.create_task(run_controllers(informers, controllers))]
        await informers.wait_synced()
        try:
            yield Cluster(api, context, watches)
        finally:
            for task in (*running, *watches.values()):
                task.cancel()
