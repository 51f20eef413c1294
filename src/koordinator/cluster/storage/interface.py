"""The thin waist under the embedded API: keys, bytes and one revision counter.

Everything above (verbs, kinds, HTTP) knows nothing of SQLite; everything below knows nothing of Kubernetes. The
contract is etcd's in small: each successful write takes the next revision; a read names the revision that it saw; the
history between two revisions can be replayed until it is compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from koordinator.base.errors import KoordinatorError


class StorageError(KoordinatorError):
    """The store could not complete the operation."""


class WriteFailed(StorageError):
    """Nothing of the write was stored. It may be tried again; the text says what has to be put right, if anything."""


class StorageFull(WriteFailed):
    """The disk has no space for the write. Reads are served, and so are writes as soon as there is space."""


class OutcomeUnknown(StorageError):
    """The write may be stored or not: the database failed in the middle of a commit and cannot be read yet.

    Once it can, either all readers see the write or none does.
    """


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


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One key at one revision. ``value`` is the document without ``metadata.resourceVersion``."""

    # There is one for each object: they are no matter to the garbage collector, which would look at all of them.

    key: str
    value: bytes
    revision: int


class Page(msgspec.Struct, frozen=True):
    """Part of a list, in key order; ``next_key`` continues it, None at the end. ``revision`` is the store's."""

    items: Sequence[Stored]
    revision: int
    next_key: str | None
    remaining: int
    """How many matching keys follow after this page."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One write, in the order of revisions. Every watcher is handed the same value, so that none copies it."""

    type: Literal["created", "updated", "deleted"]
    current: Stored
    """What was written; for a deletion the last state, under the revision of the deletion."""
    previous: Stored | None
    """What was there before; None when created."""

    @property
    def revision(self) -> int:
        return self.current.revision

    @property
    def key(self) -> str:
        return self.current.key


class Watch(Protocol):
    """A cursor over the changes under one prefix. It buffers nothing: the store's own history is read."""

    @property
    def revision(self) -> int:
        """Every matching change up to this revision was handed out."""
        ...

    async def next(self) -> Sequence[Change] | None:
        """The next changes, waiting for one; empty after ``wake``; None once the watch or the store is closed.

        Raises Compacted when the history does not reach back to the cursor, at the first call or later when the
        reader fell so far behind (a slow reader must not hold the store's memory).
        """
        ...

    def pending(self) -> Sequence[Change]:
        """The next changes that are there already; empty when there are none. Raises Compacted as ``next`` does."""
        ...

    def wake(self) -> None:
        """Make ``next`` return now, if need be with nothing, and bring ``revision`` up to date."""
        ...

    def check(self) -> None:
        """Raises Compacted when the next call of ``next`` would."""
        ...

    def close(self) -> None: ...


class Storage(Protocol):
    """The current state and a bounded history are in memory, so reads do not wait.

    All writes are durable when they return: they survive the kill -9 of the process. No reader and no watcher sees
    a write before it is durable. A power cut may lose the last moments; no revision that was given out is given out
    again even then. A key is ``/GROUP/KIND/…``; a prefix names at least ``/GROUP/KIND/``.

    A write raises StorageFull, WriteFailed or OutcomeUnknown when the disk or the database fails; reads go on.
    """

    def get(self, key: str) -> Stored | None: ...

    def list(self, prefix: str, *, limit: int = 0, start: str | None = None, revision: int | None = None) -> Page:
        """Keys under ``prefix`` in byte order, from the key ``start`` on; ``limit`` 0 means all.

        ``revision`` pins the list to the state after that write (the later pages of a list see what its first page
        saw); raises Compacted when that is gone.
        """
        ...

    async def create(self, key: str, value: bytes) -> Stored: ...

    async def update(self, key: str, value: bytes, expected: int, *, frees: bool = False) -> Stored:
        """``frees``: a step on the way to the removal of the key, which as that may use the last of the disk."""
        ...

    async def delete(self, key: str, expected: int, final: bytes | None = None) -> Stored:
        """Returns the last state under the revision of the deletion; ``final`` replaces the value in the event."""
        ...

    def watch(self, prefix: str, after: int) -> Watch:
        """Every change under ``prefix`` with a revision greater than ``after``, once, in order, then live ones."""
        ...

    def observe(self, observer: Callable[[Sequence[Change]], None]) -> None:
        """Call ``observer`` with all changes of all keys from now on, once each and in order, before their writers
        return. It must be quick, and must not raise."""
        ...

    def revision(self) -> int:
        """The last revision that was written."""
        ...

    def health(self) -> str:
        """Why writes fail at present; empty when they do not."""
        ...

    def try_again(self) -> None:
        """Find out whether the failure that ``health`` reports is over; costs a small write then, else nothing."""
        ...

    def end_watches(self) -> None:
        """Every watch that is open ends; the first step of a shutdown."""
        ...

    async def close(self) -> None:
        """Ends every watch; writes that were accepted are finished first."""
        ...
