"""The store of the audit: one SQLite file, or the same in memory, of a limited size and age.

One process at a time has the file open: the leader. When the space is used up, the namespace whose records take most
space loses its oldest ones, so that whoever can write Events in one namespace cannot push out the records of the
others. What was deleted for this reason is remembered, as are the times at which nobody listened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

from koordinator.api.audit_answer import AuditAnswer, Coverage, Drop, Gap, KeptRecord
from koordinator.api.codec import decode, encode
from koordinator.api.modification import Modification
from koordinator.base.errors import KoordinatorError

FILE: Final = "audit.sqlite"
_VERSION: Final = 1
_EVENTS_LAST: Final = timedelta(hours=1)
"""For how long an API server keeps Events, unless it is told otherwise: who listens again within it has missed none."""
_LOCK_SECONDS: Final = 0.5
_FULL: Final = 0.9
"""The share of the space that is used after records were deleted."""
_DELETED_AT_ONCE: Final = 4
"""A quarter of the records of one namespace."""
_AGED_AT_ONCE: Final = (100, 10, 1)
"""How many aged records a transaction deletes; fewer where the disk is too full for the journal of more."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY AUTOINCREMENT, event_uid TEXT NOT NULL UNIQUE, event TEXT NOT NULL, at INTEGER NOT NULL,
    program TEXT NOT NULL, action TEXT NOT NULL, cause TEXT NOT NULL, namespace TEXT NOT NULL, kind TEXT NOT NULL,
    name TEXT NOT NULL, uid TEXT NOT NULL, node TEXT NOT NULL, body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS records_by_time ON records (at, number);
CREATE INDEX IF NOT EXISTS records_by_node ON records (node, at);
CREATE INDEX IF NOT EXISTS records_by_namespace ON records (namespace, at);
CREATE TABLE IF NOT EXISTS pods (
    number INTEGER NOT NULL REFERENCES records ON DELETE CASCADE, pod TEXT NOT NULL, PRIMARY KEY (number, pod)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pods_by_name ON pods (pod, number);
CREATE TABLE IF NOT EXISTS terms (since INTEGER NOT NULL, until INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS drops (namespace TEXT PRIMARY KEY, records INTEGER NOT NULL, until INTEGER NOT NULL);
"""


class AuditStoreError(KoordinatorError):
    """Nothing can be kept or read; the text says why."""


class DiskFullError(AuditStoreError):
    """The store remains open."""


@dataclass(frozen=True, slots=True)
class ReceivedRecord:
    """A record with the UID and the ``namespace/name`` of its Event."""

    uid: str
    event: str
    record: Modification


@dataclass(frozen=True, slots=True)
class Query:
    """Which records are wanted; what is empty or None selects all."""

    pod: str = ""
    """``namespace/name``."""
    uid: str = ""
    """With ``pod``: of this very pod only."""
    namespace: str = ""
    node: str = ""
    program: str = ""
    action: str = ""
    cause: str = ""
    since: datetime | None = None
    until: datetime | None = None
    before: tuple[int, int] | None = None
    """Where the page begins: the position of the last record of the page before."""
    limit: int = 500


class AuditStore:
    """Use it from one thread at a time. Every method may raise AuditStoreError; after one, ``open`` tries anew."""

    def __init__(self, directory: str, size: int, max_age: timedelta) -> None:
        """``size`` is in bytes; without a ``directory`` the records are in memory."""
        self._path = Path(directory) / FILE if directory else None
        self._size = size
        self._max_age = max_age
        self._database: sqlite3.Connection | None = None

    @property
    def is_in_memory(self) -> bool:
        return self._path is None

    def open(self) -> str:
        """Returns what is wrong with what was found, if that was set aside; else an empty text."""
        if self._database is not None:
            return ""
        try:
            return self._open()
        except (OSError, sqlite3.Error) as error:
            raise AuditStoreError(f"{self._where}: {error}") from error

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def add(self, received: Iterable[ReceivedRecord], now: datetime, *, listens: bool = True) -> int:
        """Keep records, each once; with ``listens``, none has been missed until ``now``. Returns how many are new."""
        oldest = now - self._max_age
        # First, and for good: they make room on a full disk, where the rest fails.
        self._delete_aged(_micros(oldest))
        with self._transaction() as database:
            added = sum(_add(database, each) for each in received if _time(each.record) >= oldest)
            if listens:
                _listen(database, now)
        if self.used_bytes() > self._size:
            self._make_room()
        return added

    def find(self, query: Query, now: datetime) -> AuditAnswer:
        """A page, the newest record first."""
        with self._transaction() as database:
            text, values = _statement(query)
            rows = database.execute(text, [*values, query.limit + 1]).fetchall()
            coverage = self._coverage(database, now)
        shown = rows[: query.limit]
        return AuditAnswer(
            records=[KeptRecord(event=event, record=decode(body, Modification)) for _, _, event, body in shown],
            next=f"{shown[-1][0]}.{shown[-1][1]}" if len(rows) > len(shown) else "",
            coverage=coverage,
        )

    def used_bytes(self) -> int:
        with self._transaction() as database:
            pages, free, size = (
                database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)

    def _open(self) -> str:
        if self._path is None:
            self._database = _connect(":memory:")
            return ""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.chmod(self._path, 0o600)
        try:
            self._database = _connect(str(self._path))
        except sqlite3.OperationalError:
            # It is locked by another process, or the disk is full or gone: the file is as it was.
            raise
        except sqlite3.DatabaseError as error:
            aside = self._path.with_name(f"{FILE}.unreadable")
            self._path.replace(aside)
            # A journal that it leaves is no concern: SQLite deletes one that lies beside an empty file.
            again = self._open()
            return again or f"{self._path} cannot be read ({error}): it is set aside as {aside.name}, and begun anew"
        return ""

    def _delete_aged(self, oldest: int) -> None:
        sizes = iter(_AGED_AT_ONCE)
        size = deleted = next(sizes)
        while deleted == size:
            try:
                with self._transaction() as database:
                    deleted = database.execute(
                        "DELETE FROM records WHERE number IN "
                        "(SELECT number FROM records WHERE at < ? ORDER BY at LIMIT ?)",
                        (oldest, size),
                    ).rowcount
            except DiskFullError:
                size = deleted = next(sizes, 0)
                if not size:
                    raise
        with self._transaction() as database:
            for table in ("terms", "drops"):
                database.execute(f"DELETE FROM {table} WHERE until < ?", (oldest,))  # noqa: S608 - constants

    def _make_room(self) -> None:
        while self.used_bytes() > self._size * _FULL:
            with self._transaction() as database:
                # The pods of a record stand in a table and in an index as well.
                found = database.execute(
                    "SELECT namespace, count(*) FROM records LEFT JOIN "
                    "(SELECT number, sum(length(pod) + 16) AS size FROM pods GROUP BY number) USING (number) "
                    "GROUP BY namespace ORDER BY sum(length(body) + 2 * coalesce(size, 0)) DESC LIMIT 1"
                ).fetchone()
                if found is None:
                    return
                namespace, count = found
                deleted = -(-count // _DELETED_AT_ONCE)
                (until,) = database.execute(
                    "SELECT at FROM records WHERE namespace = ? ORDER BY at LIMIT 1 OFFSET ?", (namespace, deleted - 1)
                ).fetchone()
                # Those of the same microsecond go as well.
                gone = database.execute(
                    "DELETE FROM records WHERE namespace = ? AND at <= ?", (namespace, until)
                ).rowcount
                database.execute(
                    "INSERT INTO drops VALUES (?, ?, ?) ON CONFLICT (namespace) DO UPDATE "
                    "SET records = records + excluded.records, until = max(until, excluded.until)",
                    (namespace, gone, until),
                )

    def _coverage(self, database: sqlite3.Connection, now: datetime) -> Coverage:
        terms = [
            (_moment(since), _moment(until))
            for since, until in database.execute("SELECT since, until FROM terms ORDER BY since")
        ]
        why = "no koord-manager kept records, for longer than Events last"
        gaps = [Gap(since=ended, until=begun - _EVENTS_LAST, why=why) for (_, ended), (begun, _) in pairwise(terms)]
        drops = database.execute("SELECT namespace, records, until FROM drops ORDER BY namespace")
        return Coverage(
            since=max(terms[0][0], now - self._max_age) if terms else None,
            gaps=gaps,
            drops=[Drop(namespace=name, records=count, until=_moment(until)) for name, count, until in drops],
            in_memory=self.is_in_memory,
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._database
        if database is None:
            raise AuditStoreError(f"{self._where}: it is not open")
        try:
            with database:
                yield database
        except sqlite3.Error as error:
            problem = f"{self._where}: {error}"
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                # The file is as it was, and need not be checked again every second.
                raise DiskFullError(problem) from error
            self.close()
            raise AuditStoreError(problem) from error

    @property
    def _where(self) -> str:
        return str(self._path or "the store in memory")


def _connect(path: str) -> sqlite3.Connection:
    # Threads take turns.
    database = sqlite3.connect(path, timeout=_LOCK_SECONDS, check_same_thread=False)
    with ExitStack() as on_error:
        on_error.callback(database.close)
        # The lock is held for as long as it is open: no other replica writes to a volume that they share. The journal
        # keeps its space, so that records can be deleted when the disk is full.
        database.executescript(
            "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=PERSIST; PRAGMA synchronous=NORMAL; "
            "PRAGMA foreign_keys=ON;"
        )
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"it is of version {version}, and {_VERSION} is known")
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={_VERSION}; COMMIT;")
        on_error.pop_all()
    return database


def _add(database: sqlite3.Connection, received: ReceivedRecord) -> int:
    record = received.record
    about = record.object
    inserted = database.execute(
        "INSERT OR IGNORE INTO records (event_uid, event, at, program, action, cause, namespace, kind, name, uid, "
        "node, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            received.uid,
            received.event,
            _micros(_time(record)),
            record.program,
            record.action,
            record.cause.code,
            about.namespace,
            about.kind,
            about.name,
            about.uid,
            record.node,
            encode(record),
        ),
    )
    if not inserted.rowcount:
        return 0
    number = inserted.lastrowid
    pods = {*record.pods, *((f"{about.namespace}/{about.name}",) if about.kind == "Pod" else ())}
    database.executemany("INSERT INTO pods VALUES (?, ?)", [(number, pod) for pod in sorted(pods)])
    return 1


def _listen(database: sqlite3.Connection, now: datetime) -> None:
    """Extend the term in which records are received, or begin one if Events may have been missed since the last."""
    # A clock that was ahead may have written what is not yet.
    database.execute("DELETE FROM terms WHERE since > ?", (_micros(now),))
    database.execute("UPDATE terms SET until = ? WHERE until > ?", (_micros(now), _micros(now)))
    last = database.execute("SELECT rowid, until FROM terms ORDER BY since DESC LIMIT 1").fetchone()
    if last is not None and _moment(last[1]) >= now - _EVENTS_LAST:
        database.execute("UPDATE terms SET until = ? WHERE rowid = ?", (_micros(now), last[0]))
    else:
        database.execute("INSERT INTO terms VALUES (?, ?)", (_micros(now), _micros(now)))


def _statement(query: Query) -> tuple[str, Sequence[object]]:
    """All but the limit."""
    conditions: list[str] = []
    values: list[object] = []

    def add(condition: str, *given: object) -> None:
        conditions.append(condition)
        values.extend(given)

    if query.pod:
        add("number IN (SELECT number FROM pods WHERE pod = ?)", query.pod)
        if query.uid:
            # Another pod that had its name before is not it.
            add("(uid IN (?, '') OR kind <> 'Pod' OR namespace || '/' || name <> ?)", query.uid, query.pod)
    for column in ("namespace", "node", "program", "action", "cause"):
        if value := getattr(query, column):
            add(f"{column} = ?", value)
    if query.since is not None:
        add("at >= ?", _micros(query.since))
    if query.until is not None:
        add("at <= ?", _micros(query.until))
    if query.before is not None:
        add("(at, number) < (?, ?)", *query.before)
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    return f"SELECT at, number, event, body FROM records {where}ORDER BY at DESC, number DESC LIMIT ?", values  # noqa: S608


def _time(record: Modification) -> datetime:
    assert record.time is not None
    return record.time


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _moment(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND
