"""How a test waits for what programs do to objects of an API server: it watches them, and looks after each change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.clock import SystemClock
from koordinator.kube.client import KubeClient
from koordinator.kube.informer_set import InformerSet

T = TypeVar("T", bound=Object)
_SYNC_SECONDS = 60.0


class Watched:
    """Objects of some kinds and namespaces; made by ``watching``. They may be behind what the test itself has done with
    the ``client``."""

    def __init__(self, client: KubeClient, informers: InformerSet, selections: Sequence[tuple[Kind[Any], str]]) -> None:
        self.client = client
        self.informers = informers
        self._selections = dict(selections)
        self._changed = asyncio.Event()
        self.changes = 0
        """How many there have been."""
        self.changed_at = 0.0
        """The event loop's time of the last one."""
        for kind, namespace in selections:
            informer = informers.informer(kind, namespace=namespace)
            informer.add_handlers(on_add=self._note, on_update=self._note, on_delete=self._note)

    def list(self, kind: Kind[T]) -> Sequence[T]:
        return self.informers.informer(kind, namespace=self._selections[kind]).list()

    def get(self, kind: Kind[T], name: str) -> T | None:
        namespace = self._selections[kind]
        return self.informers.informer(kind, namespace=namespace).get(f"{namespace}/{name}" if namespace else name)

    def hear(self, kind: Kind[T], handler: Callable[[T], None]) -> None:
        """Call ``handler`` with each object that is there, is new or has changed, as it was at every moment."""
        informer = self.informers.informer(kind, namespace=self._selections[kind])
        informer.add_handlers(on_add=lambda new, initial: handler(new), on_update=lambda old, new: handler(new))

    async def until(self, holds: Callable[[], object], seconds: float) -> bool:
        """Whether it has come to hold by then; it is looked at after each change."""
        end = asyncio.get_running_loop().time() + seconds
        while not holds():
            self._changed.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self._changed.wait()
            except TimeoutError:
                return bool(holds())
        return True

    async def quiet(self, seconds: float, at_most: float) -> None:
        """Wait until nothing has changed for some seconds from now on."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        end = started + at_most
        while (left := min(max(self.changed_at, started) + seconds, end) - loop.time()) > 0:
            await asyncio.sleep(left)

    def _note(self, *_: Any) -> None:
        self.changes += 1
        self.changed_at = asyncio.get_running_loop().time()
        self._changed.set()


@asynccontextmanager
async def watching(client: KubeClient, *selections: tuple[Kind[Any], str]) -> AsyncIterator[Watched]:
    """Watch kinds, each in a namespace ("" for cluster-scoped ones and for all), around a block."""
    informers = InformerSet(client, clock=SystemClock(), random=Random())
    watched = Watched(client, informers, selections)
    async with informers.started(_SYNC_SECONDS):
        yield watched
