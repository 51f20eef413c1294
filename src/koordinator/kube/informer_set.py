"""All informers of a program: one per selection however many parts use it, run and synced together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar, cast

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.deadline import within
from koordinator.base.metrics import Metrics
from koordinator.kube.informer import Informer, InformerCollector
from koordinator.kube.interface import Client
from koordinator.kube.reflector import ReflectorOptions, Selection
from koordinator.kube.store import IndexFunction

T = TypeVar("T", bound=Object)


class InformerSet:
    """Create all informers with ``informer`` first, then run them."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        metrics: Metrics | None = None,
        options: ReflectorOptions | None = None,
        write_through: bool = True,
    ) -> None:
        """With ``write_through``, what the client writes is in the informers at once; else when the watch shows it.

        ``metrics`` get what each informer counts, and since when it has not heard of the API server; a program has
        one set with metrics."""
        self._client = client
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._options = options
        self._informers: dict[Selection[Any], Informer[Any]] = {}
        self._running = False
        if write_through:
            client.write_through(self)
        if metrics is not None:
            metrics.register(InformerCollector(self, self._clock))

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(self._informers.values())

    def informer(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        transform: Callable[[T], T] | None = None,
        absent_is_empty: bool = False,
        after: Informer[Any] | None = None,
    ) -> Informer[T]:
        """The informer of this selection, created by the first call; further indexes are added to it.

        Raises RuntimeError for a new selection once the set runs, ValueError for a second, different transform.
        """
        selection = Selection(kind, namespace, label_selector, field_selector)
        known = self._informers.get(selection)
        if known is not None:
            if transform is not None and transform is not known.transform:
                raise ValueError(f"the informer of {selection} exists with another transform")
            for name, function in (indexes or {}).items():
                known.add_index(name, cast("IndexFunction[Any]", function))
            return cast("Informer[T]", known)
        if self._running:
            raise RuntimeError(f"the informers run already: create {selection} before")
        informer = Informer(
            self._client,
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            indexes=indexes,
            transform=transform,
            absent_is_empty=absent_is_empty,
            after=after,
            clock=self._clock,
            random=self._random,
            options=self._options,
        )
        self._informers[selection] = informer
        return informer

    def put(self, kind: Kind[T], obj: T) -> None:
        """Implements ``WriteThroughCache``, as ``remove`` does."""
        for informer in self:
            if informer.kind == kind:
                informer.put(obj)

    def remove(self, kind: Kind[T], key: str, uid: str) -> None:
        for informer in self:
            if informer.kind == kind:
                informer.remove(key, uid)

    @property
    def not_synced(self) -> list[str]:
        """The selections whose initial list is still awaited, and why the last attempt failed."""
        waiting = (informer for informer in self if not informer.has_synced)
        return [
            f"{informer.selection}: {informer.reflector_statistics.last_error or 'listing'}" for informer in waiting
        ]

    async def run(self) -> None:
        """Run all informers until cancelled."""
        self._running = True
        async with asyncio.TaskGroup() as tasks:
            for informer in self:
                tasks.create_task(informer.run(), name=f"informer {informer.selection}")

    async def wait_synced(self, timeout: float | None = None) -> None:
        """Wait until every handler has seen its initial list; TimeoutError names those that have not."""
        try:
            if timeout is None:
                await self._all_synced()
            else:
                await within(self._clock, timeout, self._all_synced())
        except TimeoutError:
            raise TimeoutError(f"not in sync after {timeout}s: {'; '.join(self.not_synced)}") from None

    @asynccontextmanager
    async def started(self, timeout: float | None = None) -> AsyncIterator[InformerSet]:
        """Run the informers around a block that starts once all are in sync."""
        self._running = True
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.run(), name="informers")
            try:
                await self.wait_synced(timeout)
                yield self
            finally:
                running.cancel()

    async def _all_synced(self) -> None:
        for informer in self:
            await informer.wait_synced()
