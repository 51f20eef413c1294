"""What both drivers share: the current state, the recent history and the watchers, all in memory.

A driver makes changes durable and then applies them here. Watchers are cursors into the one history, so a watcher costs
no memory however slow it is: when the history that it has not read yet is trimmed, it gets an error and lists again.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from koordinator.cluster.storage.interface import Change, Compacted, Page, Stored

_BATCH = 500
"""Changes that one ``next`` hands out at most, so that a long replay does not starve other watchers."""
_REVISION = attrgetter("revision")


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How much history is kept for watches that resume and for lists that continue."""

    changes: int = 20_000
    size: int = 64 << 20
    """Bytes of values, counted once per change."""


class Collection:
    """The keys under one ``/GROUP/KIND/``: their state, their history and their watchers."""

    __slots__ = ("_history", "_keys", "_objects", "_trimmed_entries", "trimmed", "watchers")

    def __init__(self, trimmed: int) -> None:
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._history: list[Change] = []
        self._trimmed_entries = 0
        self.trimmed = trimmed
        """Changes up to this revision are no longer in the history."""
        self.watchers: set[WatchCursor] = set()

    def get(self, key: str) -> Stored | None:
        return self._objects.get(key)

    def apply(self, change: Change) -> None:
        if change.type == "deleted":
            del self._objects[change.key]
            del self._keys[bisect_left(self._keys, change.key)]
        else:
            if change.type == "created":
                insort(self._keys, change.key)
            self._objects[change.key] = change.current
        self._history.append(change)

    def load(self, objects: Iterable[Stored]) -> None:
        self._objects = {stored.key: stored for stored in objects}
        self._keys = sorted(self._objects)

    def remember(self, change: Change) -> None:
        """Add to the history without applying: the state was loaded already."""
        self._history.append(change)

    def trim_oldest(self) -> None:
        self.trimmed = self._history[self._trimmed_entries].revision
        self._trimmed_entries += 1
        # Removing from the front of a list moves all that follows, so that is done rarely.
        if self._trimmed_entries > 1_000 and self._trimmed_entries * 2 > len(self._history):
            del self._history[: self._trimmed_entries]
            self._trimmed_entries = 0

    def since(self, revision: int, limit: int) -> Sequence[Change]:
        self.check(revision)
        first = bisect_right(self._history, revision, lo=self._trimmed_entries, key=_REVISION)
        return self._history[first : first + limit]

    def check(self, revision: int) -> None:
        """Raises Compacted when not every change after ``revision`` is kept."""
        if revision < self.trimmed:
            raise Compacted(revision, self.trimmed + 1)

    def select(self, prefix: str, start: str | None, revision: int | None) -> tuple[list[str], dict[str, Stored]]:
        """The keys under ``prefix`` from ``start`` on and a mapping that holds at least their values."""
        begin = start if start is not None and start > prefix else prefix
        first = bisect_left(self._keys, begin)
        # A key is text of well-formed names: nothing sorts between the prefix's last key and this bound.
        last = bisect_left(self._keys, prefix[:-1] + chr(ord(prefix[-1]) + 1), lo=first)
        keys = self._keys[first:last]
        if revision is None or not (later := self.since(revision, len(self._history))):
            return keys, self._objects
        return self._rewound(keys, later, prefix, begin)

    def _rewound(
        self, keys: list[str], later: Sequence[Change], prefix: str, begin: str
    ) -> tuple[list[str], dict[str, Stored]]:
        """The state before ``later`` happened."""
        objects = {key: self._objects[key] for key in keys}
        for change in reversed(later):
            if not change.key.startswith(prefix) or change.key < begin:
                continue
            if change.previous is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.previous
        return sorted(objects), objects


class WatchCache:
    """All collections, the revision counter, and the trimming of the history across them."""

    def __init__(self, limits: HistoryLimits) -> None:
        self._limits = limits
        self._collections: dict[str, Collection] = {}
        self._order: deque[tuple[Collection, int]] = deque()
        self._size = 0
        self.observers: list[Callable[[Sequence[Change]], None]] = []
        """Called with all changes when they have become visible."""
        self.revision = 0
        self.floor = 0
        """Changes up to this revision were trimmed; none is kept before it, in any collection."""

    def restore(self, objects: Iterable[Stored], changes: Iterable[Change], revision: int, floor: int) -> None:
        """Start from what a driver kept; called once, before anything else."""
        self.revision, self.floor = revision, floor
        grouped: dict[str, list[Stored]] = {}
        for stored in objects:
            grouped.setdefault(_collection_of(stored.key), []).append(stored)
        for name, members in grouped.items():
            self._collection(name).load(members)
        for change in changes:
            self._remember(change, apply=False)
        self._trim()

    def get(self, key: str) -> Stored | None:
        return self._collection(_collection_of(key)).get(key)

    def list(self, prefix: str, limit: int, start: str | None, revision: int | None) -> Page:
        keys, objects = self._collection(_collection_of(prefix)).select(prefix, start, revision)
        page = keys[:limit] if limit else keys
        remaining = len(keys) - len(page)
        return Page(
            items=[objects[key] for key in page],
            revision=self.revision if revision is None else revision,
            next_key=keys[len(page)] if remaining else None,
            remaining=remaining,
        )

    def apply(self, changes: Sequence[Change]) -> None:
        """Make durable changes visible, all at once, and wake who watches them."""
        touched = [self._remember(change, apply=True) for change in changes]
        self.revision = changes[-1].revision
        self._trim()
        for observer in self.observers:
            observer(changes)
        for collection in dict.fromkeys(touched):
            for watcher in collection.watchers:
                watcher.notify()

    def watch(self, prefix: str, after: int) -> WatchCursor:
        return WatchCursor(self, self._collection(_collection_of(prefix)), prefix, after)

    def end_watches(self) -> None:
        for collection in self._collections.values():
            for watcher in tuple(collection.watchers):
                watcher.close()

    def _collection(self, name: str) -> Collection:
        collection = self._collections.get(name)
        if collection is None:
            collection = self._collections[name] = Collection(self.floor)
        return collection

    def _remember(self, change: Change, *, apply: bool) -> Collection:
        collection = self._collection(_collection_of(change.key))
        if apply:
            collection.apply(change)
        else:
            collection.remember(change)
        size = len(change.current.value)
        self._order.append((collection, size))
        self._size += size
        return collection

    def forget_history(self) -> None:
        """Keep no change: who has not read one yet has to list again."""
        self._trim(all_of_it=True)

    def _trim(self, *, all_of_it: bool = False) -> None:
        while self._order and (all_of_it or len(self._order) > self._limits.changes or self._size > self._limits.size):
            collection, size = self._order.popleft()
            self._size -= size
            collection.trim_oldest()
            self.floor = collection.trimmed


class WatchCursor:
    """A cursor; see ``interface.Watch``."""

    __slots__ = ("_closed", "_collection", "_prefix", "_waiter", "_watch_cache", "_woken", "revision")

    def __init__(self, watch_cache: WatchCache, collection: Collection, prefix: str, after: int) -> None:
        self._watch_cache = watch_cache
        self._collection = collection
        self._prefix = prefix
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False
        self._closed = False
        self.revision = after
        collection.watchers.add(self)

    async def next(self) -> Sequence[Change] | None:
        while not self._closed:
            # Mostly nothing has happened since the last look, which one comparison tells.
            if self._woken or self.revision < self._watch_cache.revision:
                changes = self.pending()
                if changes or self._woken:
                    self._woken = False
                    return changes
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return None

    def pending(self) -> Sequence[Change]:
        changes = self._collection.since(self.revision, _BATCH)
        # A revision beyond the store's own (a client that knew a younger store) must not be moved back.
        self.revision = (
            changes[-1].revision if len(changes) == _BATCH else max(self.revision, self._watch_cache.revision)
        )
        return [change for change in changes if change.current.key.startswith(self._prefix)]

    def wake(self) -> None:
        self._woken = True
        self.notify()

    def check(self) -> None:
        self._collection.check(self.revision)

    def notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        self._closed = True
        self._collection.watchers.discard(self)
        self.notify()


def _collection_of(key: str) -> str:
    return key[: key.index("/", key.index("/", 1) + 1) + 1]
