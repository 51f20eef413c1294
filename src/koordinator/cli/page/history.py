"""What the classes of pods had and used, over the last week, in a file of bounded size.

Each sample is counted in several steps at once, short steps for a short time and long ones for a long time, so that
nothing has to be thinned out later. A step of which nothing was seen has no value, rather than a guessed one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from koordinator.api.priority import PriorityClass
from koordinator.base.errors import KoordinatorError
from koordinator.cli.usage import NO_CLASS, ClassUsage

SAMPLE_SECONDS: Final = 10
ONLINE: Final = frozenset({PriorityClass.PROD.value, PriorityClass.MID.value, NO_CLASS})
"""The classes that are counted as online pods; the others get what these leave."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS samples (
  step INTEGER NOT NULL, time INTEGER NOT NULL, series TEXT NOT NULL, total INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (step, time, series)
) WITHOUT ROWID
"""
_ADD: Final = """
INSERT INTO samples VALUES (?, ?, ?, ?, 1)
ON CONFLICT (step, time, series) DO UPDATE SET total = total + excluded.total, count = count + 1
"""


class HistoryError(KoordinatorError):
    """The history cannot be kept or read."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time that is kept, and the step in which it is; both in seconds."""

    seconds: int
    step: int


SPANS: Final[Mapping[str, Span]] = {
    "1h": Span(3600, SAMPLE_SECONDS),
    "24h": Span(24 * 3600, 120),
    "168h": Span(7 * 24 * 3600, 900),
}
"""By the word with which they are asked for."""


class PastUsage(Protocol):
    """Where the history is read."""

    async def read(self, span: Span, now: float) -> dict[str, Any]:
        """``times`` in seconds since 1970, and for each of ``series`` as many values, None where nothing was seen.
        Raises HistoryError."""


class History:
    """The samples; ``path`` None keeps them in memory, as long as the process lives. Raises HistoryError."""

    def __init__(self, path: Path | None = None) -> None:
        try:
            if path is not None:
                path.touch(0o600)
            self._file = sqlite3.connect(path or ":memory:", isolation_level=None)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise HistoryError(f"the history {path} cannot be used: {error}; delete it to begin another") from error

    def close(self) -> None:
        self._file.close()

    def add(self, seconds: float, values: Mapping[str, int]) -> None:
        """A sample of each series, at a time in seconds since 1970. Raises HistoryError."""
        rows = [
            (span.step, int(seconds) // span.step * span.step, series, value)
            for span in SPANS.values()
            for series, value in values.items()
        ]
        # Samples of the future were made while the clock was wrong.
        kept = [(span.step, int(seconds) - span.seconds, int(seconds)) for span in SPANS.values()]
        try:
            self._file.execute("BEGIN")
            try:
                self._file.executemany(_ADD, rows)
                self._file.executemany("DELETE FROM samples WHERE step = ? AND time NOT BETWEEN ? AND ?", kept)
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            raise HistoryError(f"the history cannot be written: {error}") from error

    async def read(self, span: Span, now: float) -> dict[str, Any]:
        """See PastUsage."""
        query = "SELECT time, series, total, count FROM samples WHERE step = ? AND time BETWEEN ? AND ? ORDER BY time"
        since = (int(now) - span.seconds) // span.step * span.step
        try:
            found = self._file.execute(query, (span.step, since, int(now))).fetchall()
        except sqlite3.Error as error:
            raise HistoryError(f"the history cannot be read: {error}") from error
        return in_steps(((name, time, total / count) for time, name, total, count in found), span.step)


def in_steps(samples: Iterable[tuple[str, int, float]], step: int) -> dict[str, Any]:
    """The document of samples, which are a series, a time that is a multiple of the step, and a value."""
    found = list(samples)
    moments = [time for _, time, _ in found]
    times = list(range(min(moments), max(moments) + step, step)) if found else []
    series: dict[str, list[int | None]] = {name: [None] * len(times) for name in {name for name, _, _ in found}}
    for name, time, value in found:
        series[name][(time - times[0]) // step] = round(value)
    return {"times": times, "series": series, "step": step}


def sample_of(classes: Iterable[ClassUsage]) -> dict[str, int]:
    """The series of a sample, in milli-CPU."""
    found = dict.fromkeys(
        ("online_allocated", "online_measured", "batch_allocated", "batch_measured", "batch_reclaimable"), 0
    )
    for usage in classes:
        whose = "online" if usage.name in ONLINE else "batch"
        found[f"{whose}_allocated"] += usage.allocated.cpu
        found[f"{whose}_measured"] += usage.measured.cpu
        if usage.name == PriorityClass.BATCH.value:
            found["batch_reclaimable"] += usage.reclaimable.cpu
    return found
