"""The metric cache with a copy on disk, so that what was measured outlives the process.

Queries are served from memory, as without it. What collectors append is written every few seconds, one row a round
with all of its values in two blobs: the numbers of the series, and their values. A process that is killed loses the
rounds since then; a file that a loss of power has torn is begun anew.
"""

from __future__ import annotations

import logging
import sqlite3
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from koordinator.api.codec import DecodeError, decode, encode
from koordinator.base.errors import KoordinatorError
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind, Series
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache

logger = logging.getLogger(__name__)

_VERSION: Final = 3
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS series (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, labels TEXT NOT NULL,
    UNIQUE (kind, labels));
CREATE TABLE IF NOT EXISTS rounds (kind_group TEXT NOT NULL, at INTEGER NOT NULL, series BLOB NOT NULL,
    samples BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS rounds_at ON rounds (kind_group, at);
"""
_ROUNDS_BETWEEN_CLEANUPS: Final = 600
_KINDS: Final = {kind.name: kind for kind in vars(kinds).values() if isinstance(kind, MetricKind)}


class MetricCacheError(KoordinatorError):
    """There can be no file of samples."""


class SQLiteMetricCache(RingMetricCache):
    """See ``RingMetricCache``. ``flush`` it every few seconds, and ``close`` it."""

    def __init__(self, retentions: Mapping[str, Retention], budget_bytes: int, path: Path, now: int) -> None:
        """Takes in what the file at ``path`` has of the time before ``now`` (ms). MetricCacheError if there can be no
        file."""
        super().__init__(retentions, budget_bytes)
        self._path = path
        self._kept_rounds = {group: retention.rows for group, retention in retentions.items()}
        self._kept_ms = {group: round(retention.duration * 1000) for group, retention in retentions.items()}
        self._numbers: dict[Series, int] = {}
        self._pending: list[tuple[int, Mapping[Series, float]]] = []
        self._rounds = 0
        self._was_set_back = False
        """Whether the clock was set back since the last flush."""
        self._said = SaidOnce(logger)
        self._database = self._open(now)

    def append(self, at: int, samples: Mapping[Series, float]) -> None:
        before = self.newest(next(iter(samples)).kind) if samples else None
        super().append(at, samples)
        self._was_set_back |= before is not None and at < before
        if samples:
            self._pending.append((at, dict(samples)))

    def flush(self) -> None:
        """Write what was appended since the last time; what cannot be written stays in memory only."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        with self._said.round():
            try:
                with self._database:
                    self._write(pending)
                self._was_set_back = False
            except sqlite3.Error as error:
                self._numbers.clear()
                self._said.say(f"{self._path}: samples are kept in memory only: {error}", about=self._path)

    def _write(self, pending: Sequence[tuple[int, Mapping[Series, float]]]) -> None:
        self._database.executemany(
            "INSERT INTO rounds VALUES (?, ?, ?, ?)", [self._row(at, samples) for at, samples in pending]
        )
        if self._was_set_back:
            self._drop_future_rounds(self._database, pending[-1][0])
        self._rounds += len(pending)
        if self._rounds >= _ROUNDS_BETWEEN_CLEANUPS:
            self._rounds = 0
            self._clean_up()

    def close(self) -> None:
        self.flush()
        self._database.close()

    def _open(self, now: int) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._connect(now)
            except (sqlite3.DatabaseError, DecodeError, ValueError) as error:
                logger.warning("%s cannot be read, and is begun anew: %s", self._path, error)
                for suffix in ("", "-wal", "-shm"):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                self._numbers.clear()
                return self._connect(now)
        except (OSError, sqlite3.Error) as error:
            raise MetricCacheError(f"{self._path}: {error}") from error

    def _connect(self, now: int) -> sqlite3.Connection:
        """The file, whose samples are in memory now; DecodeError or ValueError for one of which they cannot be read."""
        database = sqlite3.connect(self._path)
        with ExitStack() as on_error:
            on_error.callback(database.close)
            # The file is worth less than the time that waiting for the disk would take.
            database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; {_SCHEMA}")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise ValueError(f"it is of version {version}, and {_VERSION} is known")
            database.execute(f"PRAGMA user_version={_VERSION}")
            self._restore(database, now)
            on_error.pop_all()
        return database

    def _restore(self, database: sqlite3.Connection, now: int) -> None:
        with database:
            self._drop_future_rounds(database, now)
        by_number = dict(self._known_series(database))
        self._numbers = {series: number for number, series in by_number.items()}
        for group, kept in self._kept_ms.items():
            rows = database.execute(
                "SELECT at, series, samples FROM rounds WHERE kind_group = ? AND at BETWEEN ? AND ? ORDER BY at",
                (group, now - kept, now),
            )
            for at, numbers, values in rows:
                known = zip(array("q", numbers), array("d", values), strict=True)
                super().append(at, {by_number[number]: value for number, value in known if number in by_number})

    def _known_series(self, database: sqlite3.Connection) -> Iterator[tuple[int, Series]]:
        for number, name, labels in database.execute("SELECT number, kind, labels FROM series"):
            kind = _KINDS.get(name)
            values = tuple(decode(labels, list[str]))
            if kind is not None and kind.group in self._kept_ms and len(values) == len(kind.labels):
                yield number, Series(kind, values)

    def _row(self, at: int, samples: Mapping[Series, float]) -> tuple[str, int, bytes, bytes]:
        group = next(iter(samples)).kind.group
        numbers = array("q", (self._number(series) for series in samples))
        return group, at, numbers.tobytes(), array("d", samples.values()).tobytes()

    def _number(self, series: Series) -> int:
        number = self._numbers.get(series)
        if number is None:
            key = series.kind.name, encode(list(series.values)).decode()
            self._database.execute("INSERT OR IGNORE INTO series (kind, labels) VALUES (?, ?)", key)
            found = self._database.execute("SELECT number FROM series WHERE kind = ? AND labels = ?", key).fetchone()
            number = self._numbers[series] = int(found[0])
        return number

    @staticmethod
    def _drop_future_rounds(database: sqlite3.Connection, now: int) -> None:
        """They would be taken for measurements of the moment when their time comes."""
        database.execute("DELETE FROM rounds WHERE at > ?", (now,))

    def _clean_up(self) -> None:
        """Drop all but the latest rounds of each group, and series that no round has: pods that have ended.

        Rounds are counted, as they are in memory: by their age, a clock that is ahead would empty the file.
        """
        for group, kept in self._kept_rounds.items():
            self._database.execute(
                "DELETE FROM rounds WHERE kind_group = :group AND rowid NOT IN"
                " (SELECT rowid FROM rounds WHERE kind_group = :group ORDER BY rowid DESC LIMIT :kept)",
                {"group": group, "kept": kept},
            )
        used: set[int] = set()
        for (numbers,) in self._database.execute("SELECT DISTINCT series FROM rounds"):
            used.update(array("q", numbers))
        gone = [(series, number) for series, number in self._numbers.items() if number not in used]
        self._database.executemany("DELETE FROM series WHERE number = ?", [(number,) for _, number in gone])
        for series, _ in gone:
            del self._numbers[series]
