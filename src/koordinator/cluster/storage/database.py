"""One connection to the cluster's database: its format, its commits, and which revisions may be given out.

WAL with synchronous=NORMAL: a commit is in the kernel before it is acknowledged and survives the kill -9 of this
process. A sync for each commit would make a write wait for the disk (``benchmarks/store_writes.py`` has the ratio), so
a power cut may lose the last moments, never consistency. What it must not do is to hand out a resourceVersion twice:
clients would take what they know of the first object for the second. Therefore revisions are reserved in blocks, and
the commit that reserves a block, one in 50,000, is synced before any revision of the block is used. When the machine
stopped without closing the store, the next start skips what was reserved and forgets the history before it, so that
clients list again. etcd's ``snapshot restore --bump-revision --mark-compacted`` does the same.

A process that was killed has lost nothing as long as the kernel runs on; the kernel's boot id distinguishes the two.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordinator.cluster.data_folder import sync_folder
from koordinator.cluster.storage.interface import Change, StorageError, StorageFull, WriteFailed

# What SQLite's errors mean for the one who runs the cluster, and what there is to do about each.


_PRIMARY: Final = 0xFF
"""Extended result codes keep the primary one in their low byte."""
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_WRITABLE: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


def primary_code(error: Exception) -> int:
    """SQLite's result code; 0 when the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


def write_failure(path: Path, error: Exception) -> StorageError:
    """For a write of which nothing was stored."""
    if is_full(path, error):
        return StorageFull(f"{path}: the disk is full; free some space, and writes succeed again")
    return WriteFailed(f"{path}: {explanation(error)}")


def is_full(path: Path, error: Exception) -> bool:
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        return True
    # The files beside the database fail with errors of other names when the disk is full.
    return code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _without_space(path)


def explanation(error: Exception) -> str:
    """One clause: what is wrong, SQLite's own words and code, what to do."""
    code = primary_code(error)
    text = f"{error}, {error.sqlite_errorname}" if hasattr(error, "sqlite_errorname") else str(error)
    if code in _LOCKED:
        return f"another program holds a lock on the database ({text}); end that program"
    if code in _NOT_WRITABLE:
        return f"the database cannot be written ({text}); make the file, its folder and its file system writable"
    if code in _DAMAGED:
        return (
            f"the database is damaged ({text}); stop the server, and either put back a copy of the folder, save what "
            "is readable with `sqlite3 FILE .recover`, or move the folder away to start with an empty cluster"
        )
    if code == sqlite3.SQLITE_IOERR:
        return f"the disk reports an error ({text}); look at the kernel's log and at the disk"
    if code == sqlite3.SQLITE_CANTOPEN:
        return f"the database cannot be opened ({text}); look at the permissions of the file and its folder"
    return text


def _without_space(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail == 0


_LOG = logging.getLogger(__name__)
_FORMAT: Final = 1
_CHECKPOINT_PAGES_INLINE: Final = 16_384
"""The backstop (64 MiB) when the checkpoints in the background do not keep up."""
_BUSY_SECONDS: Final = 0.1
"""How long a commit waits for a lock of another program; the event loop waits with it."""
RESERVED: Final = 50_000
"""Revisions in a block: a sync for each costs nothing measurable, and skipping some costs nothing at all."""
_SCHEMA: Final = (
    """
    CREATE TABLE IF NOT EXISTS change (
        revision INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        previous INTEGER,          -- the revision of the key that this change replaced
        deleted INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS compaction (
        only INTEGER PRIMARY KEY CHECK (only = 0),
        floor INTEGER NOT NULL     -- changes up to here cannot be replayed
    )
    """,
    "INSERT OR IGNORE INTO compaction VALUES (0, 0)",
    """
    CREATE TABLE IF NOT EXISTS reservation (
        only INTEGER PRIMARY KEY CHECK (only = 0),
        reserved INTEGER NOT NULL, -- revisions up to here may have been given out
        boot TEXT NOT NULL,        -- the boot of the machine that uses the store
        closed INTEGER NOT NULL    -- whether the store was closed and everything is on the disk
    )
    """,
    "INSERT OR IGNORE INTO reservation VALUES (0, 0, '', 1)",
)

Connect = Callable[..., sqlite3.Connection]
"""``sqlite3.connect``; tests inject failures."""
Row = tuple[int, str, bytes, int | None, bool]
"""Of the table ``change``."""


class InDoubt(Exception):
    """A commit failed, and whether it was done has to be read: on this connection, unless a transaction is still open
    on it that cannot be rolled back, or else on a new one."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a database is."""

    revision: int
    floor: int


def boot_id() -> str:
    """Of the running kernel; empty where there is none, and then every unclean stop counts as a power cut."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _says_nothing_new(change: Change) -> bool:
    return change.type == "deleted" and change.previous is not None and change.previous.value == change.current.value


class Database:
    """Raises sqlite3.Error and OSError, which the store translates, and StorageError for what it finds in the file."""

    def __init__(self, path: Path, connect: Connect, *, create: bool) -> None:
        """``create``: the file may be missing or empty; otherwise it has to be a database of this format."""
        self._path = path
        self._connect = connect
        self._reserved = 0
        # The cluster's secrets are in there, whatever the folder lets others read.
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        os.close(os.open(path, flags, 0o600))
        if create:
            sync_folder(path.parent)  # SQLite syncs what is in the file, and not its name
        self._connection = connect(path, isolation_level=None, timeout=_BUSY_SECONDS)
        try:
            self._open(create=create)
        except BaseException:
            self.close()
            raise

    def _open(self, *, create: bool) -> None:
        run = self._connection.execute
        (found,) = run("PRAGMA user_version").fetchone()
        if found not in (0, _FORMAT):
            raise StorageError(f"{self._path} has format {found}; this version reads and writes format {_FORMAT}")
        if not found and (not create or run("SELECT count(*) FROM sqlite_master").fetchone() != (0,)):
            raise StorageError(f"{self._path} is another database, not a cluster's; choose another data folder")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES_INLINE}")
        if create:
            self._transaction(self._prepare)

    def _prepare(self) -> None:
        for statement in _SCHEMA:
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA user_version = {_FORMAT}")

    def rows(self, after: int = 0) -> Iterable[Row]:
        """The changes that are kept, oldest first."""
        return self._connection.execute(
            "SELECT revision, key, value, previous, deleted FROM change WHERE revision > ? ORDER BY revision", (after,)
        )

    @property
    def stuck(self) -> bool:
        """In a transaction that cannot be rolled back; what it shows is not what is stored."""
        return self._connection.in_transaction

    def position(self) -> Position:
        (floor,) = self._connection.execute("SELECT floor FROM compaction").fetchone()
        (last,) = self._connection.execute("SELECT max(revision) FROM change").fetchone()
        return Position(max(floor, last or 0), floor)

    def take_over(self, boot: str) -> Position:
        """Reserve revisions for this process; called once for each start. Returns where it begins."""
        reserved, before, closed = self._connection.execute("SELECT reserved, boot, closed FROM reservation").fetchone()
        position = self.position()
        if not closed and reserved > position.revision and (not boot or boot != before):
            _LOG.warning(
                "%s was not closed before the machine stopped. Its last known revision is %d; revisions up to %d may "
                "have been given out and are skipped, and clients have to list again.",
                self._path, position.revision, reserved,
            )  # fmt: skip
            self._begin_at(boot, reserved, compacted=position.floor)
            return Position(reserved, reserved)
        self._begin_at(boot, max(reserved, position.revision))
        return position

    def _begin_at(self, boot: str, revision: int, compacted: int | None = None) -> None:
        def work() -> None:
            if compacted is not None:
                self._compact(compacted, revision)
            self._reserve(revision + RESERVED, boot)

        self._synced(lambda: self._transaction(work))
        self._reserved = revision + RESERVED

    def commit(self, changes: Sequence[Change], compact: tuple[int, int] | None, *, sparing: bool = False) -> int:
        """Append ``changes``, and drop what the history between two revisions replaced; returns the bytes of values.

        ``sparing``: of what is deleted, the last value is not stored again, which the change before has.
        Raises InDoubt when it may be done or not, and sqlite3.Error when nothing is done.
        """
        rows = [
            (
                change.revision,
                change.key,
                b"" if sparing and _says_nothing_new(change) else change.current.value,
                change.previous.revision if change.previous else None,
                change.type == "deleted",
            )
            for change in changes
        ]
        last = changes[-1].revision

        def work(reserve: int) -> None:
            self._connection.executemany("INSERT INTO change VALUES (?, ?, ?, ?, ?)", rows)
            if compact is not None:
                self._compact(*compact)
            if reserve:
                self._reserve(reserve)

        if last > self._reserved:
            self._synced(lambda: self._transaction(lambda: work(last + RESERVED)))
            self._reserved = last + RESERVED
        else:
            self._transaction(lambda: work(0))
        return sum(len(row[2]) for row in rows)

    def probe(self) -> None:
        """Whether commits succeed: one that changes nothing. Raises as ``commit`` does."""
        self._transaction(lambda: self._connection.execute("UPDATE reservation SET closed = 0"))

    def _transaction(self, work: Callable[[], object]) -> None:
        try:
            self._connection.execute("BEGIN")
            work()
        except Exception:
            self._roll_back()
            raise
        try:
            self._connection.execute("COMMIT")
        except Exception as error:
            undone = self._connection.in_transaction
            self._roll_back()
            if undone:
                raise
            # SQLite ended the transaction itself, and nothing says how.
            raise InDoubt from error

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except Exception as error:
            raise InDoubt from error

    def _synced(self, work: Callable[[], None]) -> None:
        """Run a transaction that is on the disk, with all before it, when this returns."""
        self._connection.execute("PRAGMA synchronous = FULL")
        try:
            work()
        finally:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA synchronous = NORMAL")

    def _reserve(self, revision: int, boot: str | None = None) -> None:
        self._connection.execute(
            "UPDATE reservation SET reserved = ?, closed = 0, boot = ifnull(?, boot)", (revision, boot)
        )

    def _compact(self, compacted: int, floor: int) -> None:
        run, between = self._connection.execute, (compacted, floor)
        run(
            "DELETE FROM change WHERE revision IN"
            " (SELECT previous FROM change WHERE revision > ? AND revision <= ? AND previous IS NOT NULL)",
            between,
        )
        run("DELETE FROM change WHERE revision > ? AND revision <= ? AND deleted", between)
        run("UPDATE compaction SET floor = ?", (floor,))

    def compact(self, compacted: int, floor: int) -> None:
        """Drop what the history between two revisions replaced, in a commit of its own. Raises as ``commit`` does."""
        self._transaction(lambda: self._compact(compacted, floor))

    def truncate_log(self) -> None:
        """Copy the log into the database and give its space back, if nobody else reads it."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def checkpoint(self) -> None:
        """Copy the log into the database on a connection of its own; may be called in another thread."""
        with closing(self._connect(self._path, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def finish(self, revision: int) -> None:
        """Note that everything is on the disk, and that no revision after this one was given out."""
        closed = "UPDATE reservation SET reserved = ?, closed = 1"
        self._synced(lambda: self._transaction(lambda: self._connection.execute(closed, (revision,))))

    def close(self) -> None:
        """Lets the file go; whatever fails then is found by the next one who opens it."""
        with suppress(sqlite3.Error):
            self._connection.close()
