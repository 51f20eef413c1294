"""The backend of the metric cache that koordlet has itself: a file of SQLite.

Each round is one row with all of its values in two blobs: the numbers of the series, and their values. A file that a
loss of power has torn is begun anew.
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
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.observe.metric_cache.backends import MetricCacheError
from koordinator.koordlet.observe.metric_cache.kinds import KINDS, Round, Series
from koordinator.koordlet.observe.metric_cache.ring import Retention

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


class SQLiteBackend:
    """See ``Backend``."""

    def __init__(self, path: Path, retentions: Mapping[str, Retention]) -> None:
        """MetricCacheError if there can be no file at ``path``."""
        self._path = path
        self._kept_rounds = {group: retention.rows for group, retention in retentions.items()}
        self._numbers: dict[Series, int] = {}
        self._rounds = 0
        self._said = SaidOnce(logger)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MetricCacheError(f"{path}: {error}") from error
        try:
            self._database = self._connect()
        except (sqlite3.DatabaseError, ValueError) as error:
            self._database = self._begin_anew(error)

    def read(self) -> Iterator[Round]:
        try:
            yield from self._read()
        except (sqlite3.DatabaseError, DecodeError, ValueError) as error:
            self._database.close()
            self._database = self._begin_anew(error)

    def _read(self) -> Iterator[Round]:
        by_number = dict(self._known_series())
        self._numbers = {series: number for number, series in by_number.items()}
        # In the order of their writing: where the clock was set back, a later row has an earlier time.
        for at, numbers, values in self._database.execute("SELECT at, series, samples FROM rounds ORDER BY rowid"):
            known = zip(array("q", numbers), array("d", values), strict=True)
            yield Round(at, {by_number[number]: value for number, value in known if number in by_number})

    def write(self, rounds: Sequence[Round]) -> None:
        """What cannot be written stays in memory only."""
        with self._said.round():
            try:
                with self._database:
                    self._write([each for each in rounds if each.samples])
            except sqlite3.Error as error:
                self._numbers.clear()
                self._said.say(f"{self._path}: samples are kept in memory only: {error}", about=self._path)

    def _write(self, rounds: Sequence[Round]) -> None:
        self._database.executemany("INSERT INTO rounds VALUES (?, ?, ?, ?)", [self._row(*each) for each in rounds])
        self._rounds += len(rounds)
        if self._rounds >= _ROUNDS_BETWEEN_CLEANUPS:
            self._rounds = 0
            self._clean_up()

    def close(self) -> None:
        self._database.close()

    def _begin_anew(self, error: Exception) -> sqlite3.Connection:
        """MetricCacheError if there can be no file."""
        logger.warning("%s cannot be read, and is begun anew: %s", self._path, error)
        self._numbers.clear()
        try:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return self._connect()
        except (OSError, sqlite3.Error) as again:
            raise MetricCacheError(f"{self._path}: {again}") from again

    def _connect(self) -> sqlite3.Connection:
        """ValueError for a file of another version."""
        database = sqlite3.connect(self._path)
        with ExitStack() as on_error:
            on_error.callback(database.close)
            # The file is worth less than the time that waiting for the disk would take.
            database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; {_SCHEMA}")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise ValueError(f"it is of version {version}, and {_VERSION} is known")
            database.execute(f"PRAGMA user_version={_VERSION}")
            on_error.pop_all()
        return database

    def _known_series(self) -> Iterator[tuple[int, Series]]:
        for number, name, labels in self._database.execute("SELECT number, kind, labels FROM series"):
            kind = KINDS.get(name)
            values = tuple(decode(labels, list[str]))
            if kind is not None and kind.group in self._kept_rounds and len(values) == len(kind.labels):
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
