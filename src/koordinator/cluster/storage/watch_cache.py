"""The current state, the recent history and the watchers of one kind, all in memory.

Watchers are cursors into the one history, so a watcher costs no memory however slow it is: when the history that it has
not read yet is trimmed, it gets an error and lists again.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from koordinator.cluster.storage.interface import Change, Compacted, Stored

_BATCH = 500
"""Changes that one ``next`` hands out at most, so that a long replay does not starve other watchers."""
_REVISION = attrgetter("revision")


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How much history is kept for watches that resume and for lists that continue."""

    changes: int = 20_000
    size: int = 64 << 20
    """Bytes of values, counted once per change."""


@dataclass(slots=True)
class Position:
    """Of the store as a whole."""

    revision: int = 0
    """The last one that was written."""
    floor: int = 0
    """Changes up to this revision were trimmed; none is kept before it, in any collection."""


class Collection:
    """The keys under one ``/GROUP/KIND/``: their state, their history and their watchers."""

    __slots__ = ("_history", "_trimmed_entries", "keys", "objects", "trimmed", "watchers")

    def __init__(self, trimmed: int) -> None:
        self.objects: dict[str, Stored] = {}
        self.keys: list[str] = []
        """Sorted."""
        self._history: list[Change] = []
        self._trimmed_entries = 0
        self.trimmed = trimmed
        """Changes up to this revision are no longer in the history."""
        self.watchers: set[WatchCursor] = set()

    def apply(self, change: Change) -> None:
        if change.type == "deleted":
            del self.objects[change.key]
            del self.keys[bisect_left(self.keys, change.key)]
        else:
            if change.type == "created":
                insort(self.keys, change.key)
            self.objects[change.key] = change.current
        self._history.append(change)

    def load(self, objects: Iterable[Stored]) -> None:
        self.objects = {stored.key: stored for stored in objects}
        self.keys = sorted(self.objects)

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

    def since(self, revision: int, limit: int | None = None) -> Sequence[Change]:
        self.check(revision)
        first = bisect_right(self._history, revision, lo=self._trimmed_entries, key=_REVISION)
        return self._history[first : None if limit is None else first + limit]

    def check(self, revision: int) -> None:
        """Raises Compacted when not every change after ``revision`` is kept."""
        if revision < self.trimmed:
            raise Compacted(revision, self.trimmed + 1)

    def before(self, later: Sequence[Change], keys: Sequence[str], prefix: str, begin: str) -> dict[str, Stored]:
        """The objects under ``prefix`` from ``begin`` on as they were before ``later``; ``keys`` are those of now."""
        objects = {key: self.objects[key] for key in keys}
        for change in reversed(later):
            if not change.key.startswith(prefix) or change.key < begin:
                continue
            if change.previous is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.previous
        return objects


class WatchCursor:
    """A cursor; see ``interface.Watch``."""

    __slots__ = ("_closed", "_collection", "_position", "_prefix", "_waiter", "_woken", "revision")

    def __init__(self, position: Position, collection: Collection, prefix: str, after: int) -> None:
        self._position = position
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
            if self._woken or self.revision < self._position.revision:
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
        self.revision = changes[-1].revision if len(changes) == _BATCH else max(self.revision, self._position.revision)
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
