"""The thin waist under the embedded API: keys, bytes and one revision counter.

Everything above (verbs, kinds, HTTP) knows nothing of SQLite; everything below knows nothing of Kubernetes. The
contract is etcd's in small: each successful write takes the next revision; a read names the revision that it saw; the
history between two revisions can be replayed until it is compacted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from koordinator.base.errors import KoordinatorError


class StorageError(KoordinatorError):
    """The store could not do what it was asked to."""


class KeyExists(StorageError):
    """``create`` of a key that is there."""


class KeyMissing(StorageError):
    """``update`` or ``delete`` of a key that is not there."""


class RevisionMismatch(StorageError):
    """``update`` or ``delete`` that expected another revision of the key; ``current`` is what is stored."""

    def __init__(self, current: Stored) -> None:
        super().__init__(f"{current.key} is at revision {current.revision}")
        self.current = current


class Compacted(StorageError):
    """The history from that revision on is no longer kept; ``oldest`` is the first that still is."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} is compacted; the oldest kept is {oldest}")
        self.oldest = oldest


@dataclass(frozen=True, slots=True)
class Stored:
    """One key at one revision. ``value`` is the document without ``metadata.resourceVersion``."""

    key: str
    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, in key order; ``next_key`` continues it, None at the end. ``revision`` is the store's."""

    items: Sequence[Stored]
    revision: int
    next_key: str | None
    remaining: int
    """How many matching keys follow after this page."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write, in the order of revisions. ``previous`` is the value before it (None when created)."""

    type: Literal["created", "updated", "deleted"]
    key: str
    value: bytes
    """The new value; for a deletion the last value."""
    revision: int
    previous: bytes | None


class Storage(Protocol):
    """All writes are durable when they return: they survive the kill -9 of the process."""

    async def get(self, key: str) -> Stored | None: ...

    async def list(self, prefix: str, *, limit: int = 0, start: str | None = None, revision: int | None = None) -> Page:
        """Keys under ``prefix`` in byte order. ``revision`` pins a continued list to the snapshot of its first page;
        raises Compacted when that is gone."""
        ...

    async def create(self, key: str, value: bytes) -> Stored: ...

    async def update(self, key: str, value: bytes, expected: int) -> Stored: ...

    async def delete(self, key: str, expected: int, final: bytes | None = None) -> Stored:
        """Returns the last state under the revision of the deletion; ``final`` replaces the value in the event."""
        ...

    def watch(self, prefix: str, after: int) -> AsyncIterator[Change]:
        """Every change under ``prefix`` with a revision greater than ``after``, once, in order, then live ones.

        Raises Compacted at once when the history does not reach back so far, or later when the reader fell so far
        behind that its changes were dropped (a slow reader must not hold the store's memory).
        """
        ...

    def revision(self) -> int:
        """The last revision that was written."""
        ...

    async def close(self) -> None: ...
