"""A cache of one selection of objects that tells its handlers of every change, in order, on the event loop.

What handlers see is always a consistent story: an object is added once, updated while its uid stays the same, deleted
once; an object that was re-created under its name is deleted first. Late, repeated and reordered events change nothing,
and what happened while the connection was down is told as the difference that the next list shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.deadline import within
from koordinator.kube.handlers import (
    AddHandler,
    DeleteHandler,
    HandlerSet,
    MalformedHandler,
    Registration,
    UpdateHandler,
)
from koordinator.kube.interface import Client, Malformed, WatchEvent
from koordinator.kube.reflector import Reflector, ReflectorOptions, ReflectorStatistics, Selection
from koordinator.kube.store import IndexFunction, Store
from koordinator.kube.versions import Tombstones, is_older

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)


@dataclass(slots=True)
class InformerStatistics:
    """Counters since the start."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    """Events that told nothing new: late, repeated or out of order."""
    malformed: int = 0


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
        clock: Clock | None = None,
        random: Random | None = None,
        options: ReflectorOptions | None = None,
    ) -> None:
        """``transform`` is applied before storing (to drop what nobody reads).

        ``resync_period`` in seconds repeats ``on_update(obj, obj)`` for everything; 0 never does. With
        ``absent_is_empty`` a kind that the server does not have counts as an empty, synced list until it appears.
        """
        self.kind = kind
        self.selection = Selection(kind, namespace, label_selector, field_selector)
        self.store: Store[T] = Store(indexes)
        self.statistics = InformerStatistics()
        self._clock = clock or SystemClock()
        self.transform = transform
        self._resync_period = resync_period
        self._synced = asyncio.Event()
        self._handlers: HandlerSet[T] = HandlerSet(kind.name)
        self._malformed: dict[str, Malformed] = {}
        self._tombstones = Tombstones()
        self._listed: set[str] = set()
        self._authoritative = False
        self._reflector = Reflector(
            client,
            self.selection,
            self,
            clock=self._clock,
            random=random or Random(),
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
    def malformed(self) -> Sequence[Malformed]:
        """The objects that exist in a form that cannot be read."""
        return tuple(self._malformed.values())

    @property
    def handler_errors(self) -> int:
        """How often a handler raised."""
        return self._handlers.errors

    @property
    def reflector_statistics(self) -> ReflectorStatistics:
        return self._reflector.statistics

    @property
    def resource_version(self) -> str:
        """Everything up to this version has been seen."""
        return self._reflector.resource_version

    @property
    def has_synced(self) -> bool:
        """Whether the handlers have seen the whole initial list."""
        return self._synced.is_set()

    async def wait_synced(self, timeout: float | None = None) -> None:
        """Wait for the initial list; raises TimeoutError after ``timeout`` seconds."""
        if timeout is None:
            await self._synced.wait()
        else:
            await within(self._clock, timeout, self._synced.wait())

    def add_handlers(
        self,
        *,
        name: str = "",
        on_add: AddHandler[T] | None = None,
        on_update: UpdateHandler[T] | None = None,
        on_delete: DeleteHandler[T] | None = None,
        on_malformed: MalformedHandler | None = None,
    ) -> Registration[T]:
        """Register handlers; they are called in the order of registration. What is here already is added at once."""
        registration = Registration(name or self.kind.plural, on_add, on_update, on_delete, on_malformed)
        self._handlers.add(registration)
        if on_add:
            for key, obj in [(key, self.store.get(key)) for key in self.store]:
                if obj is not None:
                    self._handlers.call(registration.name, key, on_add, obj, True)
        if on_malformed:
            for malformed in self.malformed:
                self._handlers.call(registration.name, malformed.name, on_malformed, malformed)
        return registration

    def remove_handlers(self, registration: Registration[T]) -> None:
        """Stop calling these handlers; ValueError when they are not registered."""
        self._handlers.remove(registration)

    async def run(self) -> None:
        """Keep the cache current until cancelled. Survives any failure of the API server."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run(), name=f"reflector {self.selection}")
            if self._resync_period > 0:
                tasks.create_task(self._resync(), name=f"resync {self.selection}")

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._resync_period)
            for key in list(self.store):
                obj = self.store.get(key)
                if obj is not None:
                    self._notify_update(key, obj, obj)

    # What the reflector calls (it is this informer's ``Sink``).

    def begin_replace(self, *, authoritative: bool) -> None:
        self._listed = set()
        self._authoritative = authoritative
        if authoritative:
            self._tombstones.clear()

    def replace_page(self, items: Sequence[T], malformed: Sequence[Malformed]) -> None:
        listed = self._listed
        for obj in items:
            key = obj.metadata.key
            listed.add(key)
            self._upsert(key, obj, obj.metadata.resource_version)
        for broken in malformed:
            listed.add(_key_of(broken))
            self._take_malformed(broken)

    def end_replace(self, version: str) -> None:
        listed = self._listed
        for key in [key for key in self.store if key not in listed]:
            self._delete(key, version)
        for key in [key for key in self._malformed if key not in listed]:
            del self._malformed[key]
        self._listed = set()
        self._authoritative = False
        self._synced.set()

    def apply(self, event: WatchEvent[T]) -> None:
        obj = event.object
        if obj is None:
            return
        if isinstance(obj, Malformed):
            if event.type == "DELETED":
                self._take_deletion(_key_of(obj), obj.uid, event.resource_version)
            else:
                self._take_malformed(obj)
            return
        metadata = obj.metadata
        if event.type == "DELETED":
            self._take_deletion(metadata.key, metadata.uid, event.resource_version)
        else:
            self._upsert(metadata.key, obj, metadata.resource_version)

    def _upsert(self, key: str, obj: T, version: str) -> None:
        old, uid = self.store.get(key), obj.metadata.uid
        if old is not None and self._knows_newer(old, uid, version):
            self.statistics.ignored += 1
            return
        if self._tombstones.covers(uid, version) or (self._malformed and self._is_unreadable_since(key, version)):
            self.statistics.ignored += 1
            return
        if old is not None and old.metadata.uid != uid:
            self._delete(key, version)
            old = None
        stored = self._stored(key, old, obj)
        if stored is None:
            return
        if self._malformed:
            self._malformed.pop(key, None)
        if old is None:
            self._tombstones.discard(uid)
            self._notify_add(key, stored)
        else:
            self._notify_update(key, old, stored)

    def _knows_newer(self, old: T, uid: str, version: str) -> bool:
        known = old.metadata.resource_version
        if version == known and uid == old.metadata.uid:
            return True
        return not self._authoritative and is_older(version, known)

    def _is_unreadable_since(self, key: str, version: str) -> bool:
        broken = self._malformed.get(key)
        return broken is not None and not self._authoritative and is_older(version, broken.resource_version)

    def _stored(self, key: str, old: T | None, obj: T) -> T | None:
        """Transform, index and keep the object; None when a function given by the program refuses it."""
        try:
            transformed = self.transform(obj) if self.transform is not None else obj
            self.store.put(key, transformed)
        except Exception as error:
            logger.exception("%s %s could not be stored", self.kind.name, key)
            metadata = obj.metadata
            identity = (metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)
            self._take_malformed(Malformed(self.kind, *identity, error=f"{type(error).__name__}: {error}"))
            return None
        return transformed

    def _take_malformed(self, broken: Malformed) -> None:
        key = _key_of(broken)
        stored, known = self.store.get(key), self._malformed.get(key)
        if known is not None and (known.uid, known.resource_version) == (broken.uid, broken.resource_version):
            return
        if stored is not None and is_older(broken.resource_version, stored.metadata.resource_version):
            return
        if stored is not None and broken.uid and stored.metadata.uid != broken.uid:
            self._delete(key, broken.resource_version)
        self._malformed[key] = broken
        self.statistics.malformed += 1
        logger.warning("%s %s is not readable and skipped: %s", self.kind.name, key, broken.error)
        self._handlers.malformed(key, broken)

    def _take_deletion(self, key: str, uid: str, version: str) -> None:
        self._tombstones.add(uid, version)
        self._malformed.pop(key, None)
        old = self.store.get(key)
        if old is None or (old.metadata.uid != uid and is_older(version, old.metadata.resource_version)):
            self.statistics.ignored += 1
            return
        self._delete(key, version)

    def _delete(self, key: str, version: str) -> None:
        old = self.store.remove(key)
        if old is None:
            return
        self._tombstones.add(old.metadata.uid, version)
        self.statistics.deleted += 1
        self._handlers.deleted(key, old)

    def _notify_add(self, key: str, obj: T) -> None:
        self.statistics.added += 1
        self._handlers.added(key, obj, not self._synced.is_set())

    def _notify_update(self, key: str, old: T, new: T) -> None:
        self.statistics.updated += 1
        self._handlers.updated(key, old, new)


def _key_of(broken: Malformed) -> str:
    return f"{broken.namespace}/{broken.name}" if broken.namespace else broken.name
