"""The durable store: one append-only table of changes in SQLite.

The table is both the state (the last change of each key) and the history, so a write is one insert at the end of a
B-tree. Compaction follows the history that memory keeps: it drops a row once the change that replaced it is no longer
replayable, and a deletion once it is not replayable itself.

WAL with synchronous=NORMAL: a commit is in the kernel before it is acknowledged and survives the kill -9 of this
process; a power cut may lose the last moments, never consistency.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from koordinator.cluster.storage.hub import HistoryLimits
from koordinator.cluster.storage.indexed import IndexedStorage
from koordinator.cluster.storage.interface import Change, StorageError, Stored

_LOG = logging.getLogger(__name__)
_FORMAT = 1
_CHECKPOINT_BYTES = 4 << 20
_CHECKPOINT_PAGES_INLINE = 16_384
"""The backstop (64 MiB) when the checkpoints in the background do not keep up."""
_COMPACT_EVERY = 256
_SCHEMA = """
CREATE TABLE IF NOT EXISTS change (
    revision INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    previous INTEGER,          -- the revision of the key that this change replaced
    deleted INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS compaction (
    only INTEGER PRIMARY KEY CHECK (only = 0),
    floor INTEGER NOT NULL     -- changes up to here cannot be replayed
);
INSERT OR IGNORE INTO compaction VALUES (0, 0);
"""


class SqliteStorage(IndexedStorage):
    """``interface.Storage`` in one database file."""

    def __init__(self, path: Path, limits: HistoryLimits | None = None) -> None:
        """Opens or makes the file; raises StorageError when it is not usable."""
        super().__init__(limits or HistoryLimits())
        self._path = path
        self._compacted = 0
        self._unchecked_bytes = 0
        self._checkpoint: asyncio.Future[None] | None = None
        try:
            # The cluster's secrets are in there, whatever the folder lets others read.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None)
            try:
                self._open()
                self._load()
            except BaseException:
                self._connection.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{path} cannot be used as the cluster's store: {error}") from error

    def _open(self) -> None:
        run = self._connection.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES_INLINE}")
        (found,) = run("PRAGMA user_version").fetchone()
        if found not in (0, _FORMAT):
            raise StorageError(f"{self._path} has format {found}; this version reads and writes format {_FORMAT}")
        self._connection.executescript(_SCHEMA)
        run(f"PRAGMA user_version = {_FORMAT}")

    def _load(self) -> None:
        (floor,) = self._connection.execute("SELECT floor FROM compaction").fetchone()
        objects: dict[str, Stored] = {}
        changes: list[Change] = []
        revision = floor
        rows = self._connection.execute("SELECT revision, key, value, deleted FROM change ORDER BY revision")
        for revision_of_row, key, value, deleted in rows:
            current = Stored(key, value, revision_of_row)
            previous = objects.pop(key, None) if deleted else objects.get(key)
            if not deleted:
                objects[key] = current
            if revision_of_row > floor:
                changes.append(_replayed(current, previous, deleted=bool(deleted)))
            revision = max(revision, revision_of_row)
        self._compacted = floor
        self._hub.restore(objects.values(), changes, revision, floor)

    def _persist(self, changes: Sequence[Change]) -> None:
        rows = [
            (
                change.revision,
                change.key,
                change.current.value,
                change.previous.revision if change.previous else None,
                change.type == "deleted",
            )
            for change in changes
        ]
        floor = self._hub.floor if self._hub.floor - self._compacted >= _COMPACT_EVERY else self._compacted
        try:
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO change VALUES (?, ?, ?, ?, ?)", rows)
            if floor > self._compacted:
                self._compact(floor)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise StorageError(f"{self._path}: {error}") from error
        self._compacted = floor
        self._checkpoint_soon(sum(len(row[2]) for row in rows))

    def _compact(self, floor: int) -> None:
        run = self._connection.execute
        between = (self._compacted, floor)
        run(
            "DELETE FROM change WHERE revision IN"
            " (SELECT previous FROM change WHERE revision > ? AND revision <= ? AND previous IS NOT NULL)",
            between,
        )
        run("DELETE FROM change WHERE revision > ? AND revision <= ? AND deleted", between)
        run("UPDATE compaction SET floor = ?", (floor,))

    def _checkpoint_soon(self, written: int) -> None:
        """Copy the log into the database in a thread: the fsync there must not hold up requests."""
        self._unchecked_bytes += written
        if self._unchecked_bytes < _CHECKPOINT_BYTES or (self._checkpoint and not self._checkpoint.done()):
            return
        self._unchecked_bytes = 0
        self._checkpoint = asyncio.get_running_loop().run_in_executor(None, self._run_checkpoint)

    def _run_checkpoint(self) -> None:
        try:
            with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            # Nothing is lost: the log keeps growing until a later checkpoint, in the worst case the inline one.
            _LOG.warning("checkpoint of %s failed: %s", self._path, error)

    async def close(self) -> None:
        await super().close()
        if self._checkpoint is not None:
            await self._checkpoint
        self._connection.close()


def _replayed(current: Stored, previous: Stored | None, *, deleted: bool) -> Change:
    if deleted:
        return Change("deleted", current, previous)
    return Change("created" if previous is None else "updated", current, previous)
