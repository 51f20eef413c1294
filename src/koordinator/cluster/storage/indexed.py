"""What both drivers share: all state in memory, preconditions, revisions, and one commit for all writes of a loop turn.

A driver adds nothing but ``_persist``. Writes are grouped by the event loop itself rather than by a writer thread: a
commit in WAL mode without fsync costs less than handing it to a thread and back. Measured on two cores: with one
writer at a time the thread takes 20 % more CPU per write and three times the median latency (0.12 ms instead of 0.04);
with sixteen it takes 4 % more CPU and is as fast.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from koordinator.cluster.storage.interface import (
    Change,
    KeyExists,
    KeyMissing,
    Page,
    RevisionMismatch,
    StorageError,
    StorageFull,
    Stored,
)
from koordinator.cluster.storage.watch_cache import Collection, HistoryLimits, Position, WatchCursor

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Write:
    type: Literal["created", "updated", "deleted"]
    key: str
    value: bytes
    previous: Stored | None
    frees: bool
    done: asyncio.Future[Stored]


class IndexedStorage(ABC):
    """Reads from memory, writes through ``_persist``; see ``interface.Storage``."""

    def __init__(self, limits: HistoryLimits) -> None:
        self._limits = limits
        self._collections: dict[str, Collection] = {}
        self._order: deque[tuple[Collection, int]] = deque()
        """The changes of all histories, and their sizes, oldest first."""
        self._size = 0
        self._observers: list[Callable[[Sequence[Change]], None]] = []
        self._position = Position()
        self._writes: list[_Write] = []
        self._pending: set[str] = set()
        self._committed: asyncio.Future[None] | None = None
        self._closed = False

    @abstractmethod
    def _persist(self, changes: Sequence[Change], *, frees: bool) -> None:
        """Make the changes durable, all or none; raises StorageError. ``frees``: all of them remove something."""

    @abstractmethod
    def health(self) -> str:
        """See ``interface.Storage``."""

    @abstractmethod
    def try_again(self) -> None:
        """See ``interface.Storage``."""

    def get(self, key: str) -> Stored | None:
        collection = self._collections.get(_collection_of(key))
        return None if collection is None else collection.objects.get(key)

    def list(self, prefix: str, *, limit: int = 0, start: str | None = None, revision: int | None = None) -> Page:
        collection = self._collection(prefix)
        begin = start if start is not None and start > prefix else prefix
        first = bisect_left(collection.keys, begin)
        # A key is text of well-formed names: nothing sorts between the prefix's last key and this bound.
        last = bisect_left(collection.keys, prefix[:-1] + chr(ord(prefix[-1]) + 1), lo=first)
        keys, objects = collection.keys[first:last], collection.objects
        if revision is not None and (later := collection.since(revision)):
            objects = collection.before(later, keys, prefix, begin)
            keys = sorted(objects)
        page = keys[:limit] if limit else keys
        remaining = len(keys) - len(page)
        return Page(
            items=[objects[key] for key in page],
            revision=self._position.revision if revision is None else revision,
            next_key=keys[len(page)] if remaining else None,
            remaining=remaining,
        )

    def watch(self, prefix: str, after: int) -> WatchCursor:
        return WatchCursor(self._position, self._collection(prefix), prefix, after)

    def observe(self, observer: Callable[[Sequence[Change]], None]) -> None:
        self._observers.append(observer)

    def revision(self) -> int:
        return self._position.revision

    async def create(self, key: str, value: bytes) -> Stored:
        if await self._durable(key) is not None:
            raise KeyExists(f"{key} exists")
        return await self._write("created", key, value, None)

    async def update(self, key: str, value: bytes, expected: int, *, frees: bool = False) -> Stored:
        return await self._write("updated", key, value, await self._expected(key, expected), frees=frees)

    async def delete(self, key: str, expected: int, final: bytes | None = None) -> Stored:
        previous = await self._expected(key, expected)
        return await self._write("deleted", key, previous.value if final is None else final, previous, frees=True)

    def end_watches(self) -> None:
        for collection in self._collections.values():
            for watcher in tuple(collection.watchers):
                watcher.close()

    async def close(self) -> None:
        self._flush()
        self._closed = True
        self.end_watches()

    async def _durable(self, key: str) -> Stored | None:
        """The durable state of a key that no write is on its way for.

        A decision is never based on a write that may still fail, so writers of one key wait for each other.
        """
        while key in self._pending and self._committed is not None:
            await asyncio.wait((self._committed,))
        return self.get(key)

    async def _expected(self, key: str, expected: int) -> Stored:
        current = await self._durable(key)
        if current is None:
            raise KeyMissing(f"{key} does not exist")
        if current.revision != expected:
            raise RevisionMismatch(current)
        return current

    async def _write(
        self,
        kind: Literal["created", "updated", "deleted"],
        key: str,
        value: bytes,
        previous: Stored | None,
        *,
        frees: bool = False,
    ) -> Stored:
        if self._closed:
            raise StorageError("the store is closed")
        loop = asyncio.get_running_loop()
        if not self._writes:
            self._committed = loop.create_future()
            loop.call_soon(self._flush)
        done: asyncio.Future[Stored] = loop.create_future()
        self._writes.append(_Write(kind, key, value, previous, frees, done))
        self._pending.add(key)
        return await done

    def _flush(self) -> None:
        writes, self._writes = self._writes, []
        if not writes:
            return
        reports = [self._commit(writes)]
        freeing = [write for write in writes if write.frees]
        if isinstance(reports[0][2], StorageFull) and 0 < len(freeing) < len(writes):
            # Those that remove something must not fail for those beside them.
            others = [write for write in writes if not write.frees]
            reports = [(others, (), reports[0][2]), self._commit(freeing)]
        self._pending.clear()
        if self._committed is not None:
            self._committed.set_result(None)
        for report in reports:
            self._report(*report)

    def _commit(self, writes: Sequence[_Write]) -> tuple[Sequence[_Write], Sequence[Change], StorageError | None]:
        first = self._position.revision + 1
        changes = [
            Change(write.type, Stored(write.key, write.value, first + index), write.previous)
            for index, write in enumerate(writes)
        ]
        failure: StorageError | None = None
        try:
            self._persist(changes, frees=all(write.frees for write in writes))
            self._apply(changes)
        except StorageError as error:
            failure = error
        except Exception as error:
            # This is a callback of the event loop: whatever escaped from it would leave the writers waiting for ever.
            _LOG.exception("%d writes failed", len(writes))
            failure = StorageError(f"the write failed for an unforeseen reason, see the log: {error}")
            failure.__cause__ = error
        return writes, changes, failure

    def _report(self, writes: Sequence[_Write], changes: Sequence[Change], failure: StorageError | None) -> None:
        # The caller of one that is done was cancelled meanwhile; the write holds all the same.
        if failure is not None:
            for write in writes:
                if not write.done.done():
                    write.done.set_exception(failure)
            return
        for write, change in zip(writes, changes, strict=True):
            if not write.done.done():
                write.done.set_result(change.current)

    # The state in memory, which a driver loads once and each durable change is applied to.

    def _restore(self, objects: Iterable[Stored], changes: Iterable[Change], revision: int, floor: int) -> None:
        """Start from what a driver kept; called once, before anything else."""
        self._position.revision, self._position.floor = revision, floor
        grouped: dict[str, list[Stored]] = {}
        for stored in objects:
            grouped.setdefault(_collection_of(stored.key), []).append(stored)
        for name, members in grouped.items():
            self._collection(name).load(members)
        for change in changes:
            collection = self._collection(change.current.key)
            collection.remember(change)
            self._count(collection, change)
        self._trim()

    def _apply(self, changes: Sequence[Change]) -> None:
        """Make durable changes visible, all at once, and wake who watches them."""
        touched: dict[Collection, None] = {}
        for change in changes:
            collection = self._collection(change.current.key)
            collection.apply(change)
            self._count(collection, change)
            touched[collection] = None
        self._position.revision = changes[-1].revision
        self._trim()
        for observer in self._observers:
            observer(changes)
        for collection in touched:
            for watcher in collection.watchers:
                watcher.notify()

    def _collection(self, key: str) -> Collection:
        """That of a key or a prefix."""
        name = _collection_of(key)
        collection = self._collections.get(name)
        if collection is None:
            collection = self._collections[name] = Collection(self._position.floor)
        return collection

    def _count(self, collection: Collection, change: Change) -> None:
        size = len(change.current.value)
        self._order.append((collection, size))
        self._size += size

    def _forget_history(self) -> None:
        """Keep no change: who has not read one yet has to list again."""
        self._trim(all_of_it=True)

    def _trim(self, *, all_of_it: bool = False) -> None:
        while self._order and (all_of_it or len(self._order) > self._limits.changes or self._size > self._limits.size):
            collection, size = self._order.popleft()
            self._size -= size
            collection.trim_oldest()
            self._position.floor = collection.trimmed


def _collection_of(key: str) -> str:
    return key[: key.index("/", key.index("/", 1) + 1) + 1]


# A store that forgets with the process: for tests, for throw-away clusters and for simulations.


class MemoryStorage(IndexedStorage):
    """``interface.Storage`` without a disk. ``objects`` are there from the start; the last of them has the store's
    revision."""

    def __init__(self, limits: HistoryLimits | None = None, objects: Sequence[Stored] = ()) -> None:
        super().__init__(limits or HistoryLimits())
        if objects:
            revision = objects[-1].revision
            self._restore(objects, (), revision, revision)

    def _persist(self, changes: Sequence[Change], *, frees: bool) -> None:
        """What is in memory is as durable as this store gets."""

    def health(self) -> str:
        return ""

    def try_again(self) -> None:
        """Nothing ever fails here."""
