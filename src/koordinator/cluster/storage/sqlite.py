"""The durable store: one append-only table of changes in SQLite.

The table is both the state (the last change of each key) and the history, so a write is one insert at the end of a
B-tree. Compaction follows the history that memory keeps: it drops a row once the change that replaced it is no longer
replayable, and a deletion once it is not replayable itself.

When a commit fails, nothing of it is stored, and its writers get an error. When it cannot be known whether it was done,
the database is opened anew and read: what it has holds for the writers, for readers and for watchers alike.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from koordinator.cluster.storage.ballast import Ballast
from koordinator.cluster.storage.database import (
    Connect,
    Database,
    InDoubt,
    Position,
    Row,
    boot_id,
    explanation,
    is_full,
    write_failure,
)
from koordinator.cluster.storage.indexed import IndexedStorage
from koordinator.cluster.storage.interface import Change, OutcomeUnknown, StorageError, StorageFull, Stored, WriteFailed
from koordinator.cluster.storage.watch_cache import HistoryLimits

_LOG = logging.getLogger(__name__)
_CHECKPOINT_BYTES = 4 << 20
_COMPACT_EVERY = 256


class SqliteStorage(IndexedStorage):
    """``interface.Storage`` in one database file."""

    def __init__(
        self,
        path: Path,
        limits: HistoryLimits | None = None,
        *,
        connect: Connect = sqlite3.connect,
        boot: str | None = None,
        ballast: Ballast | None = None,
    ) -> None:
        """Opens or makes the file; raises StorageError when it is not usable.

        ``boot`` distinguishes the boots of the machine; by default it is the kernel's boot id. ``ballast`` is the space
        that is kept for deletions; by default a file beside the database.
        """
        super().__init__(limits or HistoryLimits())
        self._path = path
        self._connect = connect
        self._compacted = 0
        self._unchecked_bytes = 0
        self._checkpoint: asyncio.Future[None] | None = None
        self._database: Database | None = None
        """None: it failed and could not be opened anew yet."""
        self._write_error = ""
        self._checkpoint_error = ""
        self._ballast = Ballast(path.with_name(f"{path.name}-ballast")) if ballast is None else ballast
        try:
            self._open_with_ballast(boot_id() if boot is None else boot)
        except (sqlite3.Error, OSError, ValueError, InDoubt) as error:
            cause = error.__cause__ if isinstance(error, InDoubt) and isinstance(error.__cause__, Exception) else error
            why = "the disk is full; free some space" if is_full(path, cause) else explanation(cause)
            raise StorageError(f"{path} cannot be used as the cluster's store: {why}") from error
        self._ballast.lay_in()

    def _open_with_ballast(self, boot: str) -> None:
        """A full disk must not keep the server from starting, and so from deleting."""
        try:
            self._open(boot)
        except (sqlite3.Error, OSError, InDoubt) as error:
            cause = error.__cause__ if isinstance(error, InDoubt) and isinstance(error.__cause__, Exception) else error
            if not is_full(self._path, cause) or not self._ballast.release():
                raise
            self._open(boot)

    def _open(self, boot: str) -> None:
        self._database = Database(self._path, self._connect, create=True)
        try:
            self._load(self._database, boot)
        except BaseException:
            self._database.close()
            raise

    def health(self) -> str:
        return self._write_error or self._checkpoint_error

    def try_again(self) -> None:
        if self._ballast.is_released:
            self._relieve()
        if self._write_error:
            try:
                self._usable().probe()
            except StorageError as error:
                self._failed(error)
            except InDoubt:
                self._let_go()
            except (sqlite3.Error, OSError) as error:
                self._failed(write_failure(self._path, error))
            else:
                self._succeeded()
        if self._checkpoint_error:
            self._checkpoint_soon(_CHECKPOINT_BYTES)

    def _relieve(self) -> None:
        """Make what was deleted worth it: drop the history, in which it still is, and give the log's space back."""
        database = self._database
        if database is None or (self._checkpoint and not self._checkpoint.done()):
            return
        if self._position.revision > self._compacted:
            self._forget_history()
            floor = self._position.floor
            with suppress(sqlite3.Error, InDoubt):
                database.compact(self._compacted, floor)
                self._compacted = floor
        database.truncate_log()
        self._ballast.lay_in()

    def _load(self, database: Database, boot: str) -> None:
        position = database.take_over(boot)
        objects: dict[str, Stored] = {}
        changes: list[Change] = []
        for row in database.rows():
            change = _replayed(row, objects.get(row[1]))
            if change.type == "deleted":
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.current
            if change.revision > position.floor:
                changes.append(change)
        self._compacted = position.floor
        self._restore(objects.values(), changes, position.revision, position.floor)

    def _persist(self, changes: Sequence[Change], *, frees: bool) -> None:
        if not frees and not self._ballast.spares():
            raise self._failed(StorageFull(f"{self._path}: the disk is full; what is left is for deletions"))
        try:
            self._commit_once(changes)
        except StorageFull:
            if not frees or not self._ballast.release():
                raise
            if self._database is not None:
                self._database.truncate_log()
            self._commit_once(changes)

    def _commit_once(self, changes: Sequence[Change]) -> None:
        floor = self._position.floor
        compact = (self._compacted, floor) if floor - self._compacted >= _COMPACT_EVERY else None
        known = self._position.revision
        database = self._usable()
        if self._position.revision != known:
            raise WriteFailed(f"{self._path} was opened anew, and earlier writes turned out to be stored; try again")
        try:
            written = database.commit(changes, compact, sparing=self._ballast.is_released)
        except InDoubt as doubt:
            self._resolve(changes, doubt)
            written = 0
        except sqlite3.Error as error:
            raise self._failed(write_failure(self._path, error)) from error
        else:
            if compact is not None:
                self._compacted = floor
        self._succeeded()
        self._checkpoint_soon(written)

    def _resolve(self, changes: Sequence[Change], doubt: InDoubt) -> None:
        """Returns when they are stored. Raises WriteFailed when they are not, OutcomeUnknown when that is unknown."""
        cause = doubt.__cause__
        assert isinstance(cause, Exception)
        _LOG.error("%s failed in the middle of a commit: %s", self._path, cause)
        try:
            position = self._read_again()
        except StorageError as error:
            raise self._failed(OutcomeUnknown(f"{error}; whether the write was stored is not known")) from cause
        self._compacted = position.floor
        if position.revision < changes[-1].revision:
            raise self._failed(write_failure(self._path, cause)) from cause

    def _read_again(self) -> Position:
        """Where the database is after a commit in doubt, on a new connection if need be. Raises StorageError."""
        if self._database is not None and not self._database.stuck:
            with suppress(sqlite3.Error):
                return self._database.position()
        self._let_go()
        try:
            database = self._reopened()
            position = database.position()
        except (sqlite3.Error, OSError) as error:
            raise write_failure(self._path, error) from error
        self._database = database
        return position

    def _usable(self) -> Database:
        """The database, opened anew if need be; writes that were in doubt are seen then. Raises StorageError."""
        if self._database is not None:
            return self._database
        try:
            database = self._reopened()
            found = self._found(database)
            self._compacted = database.position().floor
        except (sqlite3.Error, OSError) as error:
            raise self._failed(write_failure(self._path, error)) from error
        except StorageError as error:
            raise self._failed(error) from error
        self._database = database
        if found:
            self._apply(found)
        return database

    def _reopened(self) -> Database:
        """Raises what prevents it, and StorageError when the file is not the one that was open before."""
        try:
            database = Database(self._path, self._connect, create=False)
        except FileNotFoundError:
            raise StorageError(f"{self._path} is not there any more; put it back, or stop the server") from None
        try:
            revision = database.position().revision
        except BaseException:
            database.close()
            raise
        if revision >= self._position.revision:
            return database
        database.close()
        raise StorageError(
            f"{self._path} is another database now: it ends at revision {revision}, and revision "
            f"{self._position.revision} was stored; put the right one back, or stop the server"
        )

    def _found(self, database: Database) -> list[Change]:
        """What was stored although its writers got no response."""
        found: dict[str, Change] = {}
        for row in database.rows(self._position.revision):
            found[row[1]] = _replayed(row, self.get(row[1]))
        return list(found.values())

    def _let_go(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _failed(self, error: StorageError) -> StorageError:
        if not self._write_error:
            _LOG.error("writes fail: %s", error)
        self._write_error = str(error)
        return error

    def _succeeded(self) -> None:
        if self._write_error:
            _LOG.warning("%s: writes succeed again", self._path)
            self._write_error = ""

    def _checkpoint_soon(self, written: int) -> None:
        """Copy the log into the database in a thread: the fsync there must not hold up requests."""
        self._unchecked_bytes += written
        if self._unchecked_bytes < _CHECKPOINT_BYTES or (self._checkpoint and not self._checkpoint.done()):
            return
        database = self._database
        if database is None:
            return
        self._unchecked_bytes = 0
        self._checkpoint = asyncio.get_running_loop().run_in_executor(None, self._run_checkpoint, database)

    def _run_checkpoint(self, database: Database) -> None:
        try:
            database.checkpoint()
        except Exception as error:
            # Nothing is lost: the log keeps growing until a later checkpoint, in the worst case the inline one.
            why = "the disk is full" if is_full(self._path, error) else explanation(error)
            if not self._checkpoint_error:
                _LOG.warning("checkpoint of %s failed: %s", self._path, why)
            self._checkpoint_error = f"{self._path}: the write-ahead log grows, since a checkpoint failed: {why}"
        else:
            self._checkpoint_error = ""

    async def close(self) -> None:
        await super().close()
        if self._checkpoint is not None:
            await self._checkpoint
        if self._database is None:
            return
        try:
            self._database.finish(self._position.revision)
        except (sqlite3.Error, InDoubt) as error:
            _LOG.warning("%s could not be closed cleanly: %s", self._path, error.__cause__ or error)
        self._let_go()


def _replayed(row: Row, previous: Stored | None) -> Change:
    revision, key, value, _, deleted = row
    if deleted and not value and previous is not None:
        value = previous.value
    if not key.startswith("/") or key.count("/") < 3:
        raise ValueError(f"revision {revision} has the key {key!r}, which is none of a cluster")
    current = Stored(key, value, revision)
    if deleted:
        return Change("deleted", current, previous)
    return Change("created" if previous is None else "updated", current, previous)
