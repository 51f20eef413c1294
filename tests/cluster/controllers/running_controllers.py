"""Workload controllers over an API server in memory, and what a kubelet would write about their pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from koordinator.api.kinds import EVENTS, PODS, Kind
from koordinator.base.metrics import Metrics
from koordinator.cluster.controllers.context import ControllerContext, ControllerMaker
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.reconciler import Reconcilers, run_controllers
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for

Document = dict[str, Any]


def asynchronous(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is a coroutine."""

    def run() -> None:
        asyncio.run(test())

    return run


class Cluster:
    """An API server in memory with controllers that run; objects are in the namespace ``default``."""

    def __init__(self, api: InMemoryApi, client: Client, watches: Mapping[str, asyncio.Task[None]]) -> None:
        """``watches`` keep the caches of the controllers current, by the plural of the kind."""
        self.api = api
        self.client = client
        self._watches = watches

    def freeze_cache(self, kind: Kind[Any]) -> None:
        """From now on the controllers see no change of this kind."""
        self._watches[kind.plural].cancel()

    async def create(self, kind: Kind[Any], name: str, spec: Document, **metadata: Any) -> Document:
        await self.client.create(kind, {"metadata": {"name": name, **metadata}, "spec": spec}, "default")
        return self.api.document(kind, name, "default")

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

    async def event(self, reason: str) -> Document:
        """Wait for an event with this reason."""
        await wait_for(lambda: any(event.get("reason") == reason for event in self.api.all(EVENTS)))
        return next(event for event in self.api.all(EVENTS) if event.get("reason") == reason)


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
            yield Cluster(api, client, watches)
        finally:
            for task in (*running, *watches.values()):
                task.cancel()
