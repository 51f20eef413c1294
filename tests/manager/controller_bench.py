"""A controller at work on an API server in memory, on a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Protocol, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.clock import ManualClock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.kube.client import KubeClient
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.options import Options
from tests.in_memory_api import InMemoryApi
from tests.waiting import once

T = TypeVar("T", bound=Object)
SYSTEM = "koordinator-system"
_PATIENCE = 20


class Runs(Protocol):
    async def run(self) -> None: ...


class ControllerBench:
    """``clock`` is the controllers'; everything else goes by the real one."""

    def __init__(self, client: KubeClient, options: Options) -> None:
        self.client = client
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.informers = InformerSet(client, clock=SystemClock(), random=Random(1))
        self.events = EventBroadcaster(
            client, instance="test", program="koord-manager", clock=SystemClock(), random=Random(1)
        )
        self.context = ControllerContext(
            client, self.informers, self.events, options, self.metrics, self.clock, Random(1)
        )

    @asynccontextmanager
    async def working(self, *controllers: Runs) -> AsyncIterator[None]:
        """Run them around a block, from the moment at which their caches are in sync."""
        async with self.informers.started(_PATIENCE), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in (self.events, *controllers)]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()

    async def once(self, kind: Kind[T], is_there: Callable[[T], bool], namespace: str = "") -> T:
        """The first object that is so, as soon as there is one."""
        return await once(self.client, kind, is_there, namespace)

    async def until_gone(self, kind: Kind[Any], name: str) -> None:
        async with asyncio.timeout(_PATIENCE):
            page = await self.client.list(kind)
            if all(item.metadata.name != name for item in page.items):
                return
            async for event in self.client.watch(kind, resource_version=page.resource_version):
                if event.type == "DELETED":
                    return

    async def until_known(self, kind: Kind[T], is_there: Callable[[T], bool], namespace: str = "") -> None:
        """Until the controllers' cache has an object that is so."""
        known = asyncio.Event()

        def look(found: T) -> None:
            if is_there(found):
                known.set()

        informer = self.informers.informer(kind, namespace=namespace)
        informer.add_handlers(on_add=lambda new, _: look(new), on_update=lambda _, new: look(new))
        async with asyncio.timeout(_PATIENCE):
            await known.wait()


@asynccontextmanager
async def controller_bench(options: Options | None = None) -> AsyncIterator[ControllerBench]:
    """On an API server in memory."""
    async with InMemoryApi(SystemClock()).running() as api:
        client = api.client()
        try:
            yield ControllerBench(client, options or Options())
        finally:
            await client.close()
