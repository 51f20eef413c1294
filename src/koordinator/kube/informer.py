"""A cache of one selection of objects that notifies its handlers of every change, in order, on the event loop.

Informers bring together who lists and watches (``reflector``), what is known of the objects (``object_cache``), and who
wants to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.deadline import within
from koordinator.kube.handlers import (
    AddHandler,
    DeleteHandler,
    MalformedHandler,
    ReadableHandler,
    Registration,
    UpdateHandler,
)
from koordinator.kube.interface import Client, Malformed
from koordinator.kube.object_cache import InformerStatistics, ObjectCache, is_older
from koordinator.kube.reflector import Reflector, ReflectorOptions, ReflectorStatistics, Selection
from koordinator.kube.store import IndexFunction, Store

# What informers count, made into samples when scraped, so that the hot path only adds integers.


_LABELS = ["kind", "selection"]

_COUNTERS: list[tuple[str, str, Callable[[Informer[Any]], int]]] = [
    ("added", "Objects that appeared", lambda informer: informer.statistics.added),
    ("updated", "Objects that changed", lambda informer: informer.statistics.updated),
    ("deleted", "Objects that vanished", lambda informer: informer.statistics.deleted),
    ("ignored", "Late, repeated or reordered events", lambda informer: informer.statistics.ignored),
    ("malformed", "Object versions that could not be read", lambda informer: informer.statistics.malformed),
    ("handler_errors", "Handlers that raised", lambda informer: informer.handler_errors),
    ("lists", "Lists made", lambda informer: informer.reflector_statistics.lists),
    ("watches", "Watches opened", lambda informer: informer.reflector_statistics.watches),
    ("failures", "Lists and watches that failed", lambda informer: informer.reflector_statistics.failures),
]


class InformerCollector(Collector):
    """Samples of all informers of a set."""

    def __init__(self, informers: Iterable[Informer[Any]], clock: Clock) -> None:
        self._informers = informers
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        informers = [([informer.kind.qualified, str(informer.selection)], informer) for informer in self._informers]
        for name, help_text, read in _COUNTERS:
            counter = CounterMetricFamily(f"informer_{name}", f"[ALPHA] {help_text}", labels=_LABELS)
            for labels, informer in informers:
                counter.add_metric(labels, read(informer))
            yield counter
        objects = GaugeMetricFamily("informer_objects", "[ALPHA] Objects held", labels=_LABELS)
        silence = GaugeMetricFamily(
            "informer_seconds_since_contact", "[ALPHA] Seconds since the API server was last heard", labels=_LABELS
        )
        for labels, informer in informers:
            objects.add_metric(labels, len(informer))
            silence.add_metric(labels, self._clock.monotonic() - informer.reflector_statistics.last_contact)
        yield objects
        yield silence


T = TypeVar("T", bound=Object)
_NOTIFY_AGAIN: Final = BackoffPolicy(initial=1.0, maximum=60.0, jitter=0.25)


class Informer(Generic[T]):
    """The cache of one selection. Reads and handlers belong to the loop that runs it."""

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        transform: Callable[[T], T] | None = None,
        resync_period: float = 0.0,
        absent_is_empty: bool = False,
        after: Informer[Any] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        options: ReflectorOptions | None = None,
    ) -> None:
        """``transform`` is applied before storing (to drop what is never read).

        ``resync_period`` in seconds repeats ``on_update(obj, obj)`` for everything; 0 never does. With
        ``absent_is_empty`` a kind that the server does not have counts as an empty, synced list until it appears.
        Nothing is listed before ``after`` is in sync.
        """
        self.kind = kind
        self.selection = Selection(kind, namespace, label_selector, field_selector)
        self.store: Store[T] = Store(indexes)
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self.transform = transform
        self._resync_period = resync_period
        self._after = after
        self.cache = ObjectCache(kind, self.store, transform)
        """Written by the reflector, and by ``put`` and ``remove``."""
        self._reflector = Reflector(
            client,
            self.selection,
            self.cache,
            clock=self._clock,
            random=self._random,
            options=options,
            absent_is_empty=absent_is_empty,
        )

    def __len__(self) -> int:
        return len(self.store)

    def get(self, key: str) -> T | None:
        """The object with this ``namespace/name`` (the name alone for cluster-scoped kinds)."""
        return self.store.get(key)

    def list(self) -> Sequence[T]:
        """All objects now."""
        return tuple(self.store.values())

    def by_index(self, name: str, value: str) -> Sequence[T]:
        """The objects that index ``name`` files under ``value``."""
        return self.store.by_index(name, value)

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Index the objects in another way, from now on and those already here."""
        self.store.add_index(name, function)

    @property
    def statistics(self) -> InformerStatistics:
        return self.cache.statistics

    @property
    def malformed(self) -> Sequence[Malformed]:
        """The objects that exist in a form that cannot be read."""
        return tuple(self.cache.malformed.values())

    @property
    def handler_errors(self) -> int:
        """How often a handler raised."""
        return self.cache.handlers.errors

    @property
    def reflector_statistics(self) -> ReflectorStatistics:
        return self._reflector.statistics

    @property
    def lack(self) -> str:
        """What the cluster lacks for it (the kind, a right), in a sentence; empty where nothing is known to be."""
        return self._reflector.lack

    @property
    def resource_version(self) -> str:
        """Everything up to this version has been seen."""
        return self._reflector.resource_version

    @property
    def has_synced(self) -> bool:
        """Whether the handlers have seen the whole initial list."""
        return self.cache.synced.is_set()

    def put(self, obj: T) -> None:
        """The server has responded with ``obj``, which is of the kind. What the watch has gone past is known better.

        What a selector selects is the server's to say, but for that of a name: it comes by the watch alone."""
        metadata = obj.metadata
        if self._takes(metadata.key) and is_older(self.resource_version, metadata.resource_version):
            self.cache.put(obj)

    def remove(self, key: str, uid: str) -> None:
        """The server has responded that an object of the kind is gone."""
        if self._takes(key):
            self.cache.remove(key, uid)

    def _takes(self, key: str) -> bool:
        selection, (namespace, _, name) = self.selection, key.rpartition("/")
        is_selected = not selection.label_selector and selection.field_selector in ("", f"metadata.name={name}")
        return is_selected and selection.namespace in ("", namespace)

    async def wait_synced(self, timeout: float | None = None) -> None:
        """Wait for the initial list; raises TimeoutError after ``timeout`` seconds."""
        if timeout is None:
            await self.cache.synced.wait()
        else:
            await within(self._clock, timeout, self.cache.synced.wait())

    def add_handlers(
        self,
        *,
        name: str = "",
        on_add: AddHandler[T] | None = None,
        on_update: UpdateHandler[T] | None = None,
        on_delete: DeleteHandler[T] | None = None,
        on_malformed: MalformedHandler | None = None,
        on_readable: ReadableHandler | None = None,
    ) -> None:
        """Register handlers; they are called in the order of registration. What is here already is added at once."""
        registration = Registration(name or self.kind.plural, on_add, on_update, on_delete, on_malformed, on_readable)
        self.cache.handlers.add(registration)
        if on_add:
            for key, obj in [(key, self.store.get(key)) for key in self.store]:
                if obj is not None:
                    self.cache.handlers.added_before(registration, key, obj)
        if on_malformed:
            for malformed in self.malformed:
                self.cache.handlers.notify_malformed(registration, malformed.name, malformed)

    async def run(self) -> None:
        """Keep the cache current until cancelled. Survives any failure of the API server."""
        if self._after is not None:
            await self._after.wait_synced()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run(), name=f"reflector {self.selection}")
            tasks.create_task(self._notify_again(), name=f"handlers {self.selection}")
            if self._resync_period > 0:
                tasks.create_task(self._resync(), name=f"resync {self.selection}")

    async def _notify_again(self) -> None:
        """Handlers that have failed, of what they have missed: soon, and then less and less often."""
        handlers = self.cache.handlers
        while True:
            await handlers.failed.wait()
            backoff = Backoff(_NOTIFY_AGAIN, self._clock, self._random)
            while handlers.failed.is_set():
                await self._clock.sleep(backoff.next())
                handlers.retry(self.store.get)

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._resync_period)
            for key in list(self.store):
                obj = self.store.get(key)
                if obj is not None:
                    self.statistics.updated += 1
                    self.cache.handlers.updated(key, obj, obj)
