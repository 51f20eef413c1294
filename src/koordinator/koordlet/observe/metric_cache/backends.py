"""Backends of the metric cache: where its samples outlive the process.

Queries are served from memory, whichever backend there is: how long they take, and what they need, does not depend on
it. What is appended is written to the backend every few seconds, as to a sink; what a backend has, a sink has not, is
that it reads what it has written, once, before anything is measured. A backend of another package is found by its entry
point (``koordlet.enforce.plugins``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.observe.metric_cache.kinds import Round
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache

FLAG: Final = "metric-cache-backend"
MEMORY: Final = "memory"
"""The name for no backend: samples are lost with the process."""
SQLITE: Final = "sqlite"
INTERVAL: Final = 5.0
"""Seconds. A process that is killed loses the rounds since the last time."""


class MetricCacheError(KoordinatorError):
    """The backend cannot keep samples where it is to."""


class Backend(Protocol):
    """What is kept of the rounds. Used by one thread."""

    def read(self) -> Iterable[Round]:
        """What was written before, by earlier processes, within a group in the order in which it was written: of each
        group the last ``Retention.rows`` rounds at least. Called once, before anything is written.

        Whatever makes no sense is left out: a process may have been killed at any moment, and a disk may be full."""
        ...

    def write(self, rounds: Sequence[Round]) -> None:
        """Keep these, too; what cannot be written is lost. What is older than the retention may go."""
        ...

    def close(self) -> None:
        """Nothing is written any more."""
        ...


OpenBackend = Callable[[Path, Mapping[str, Retention]], Backend]
"""Makes the backend in a folder, which need not be there; the retentions are by group. Raises MetricCacheError if there
can be none."""


def open_sqlite(folder: Path, retentions: Mapping[str, Retention]) -> Backend:
    """The one that koordlet has itself."""
    # A megabyte, which few nodes need.
    from koordinator.koordlet.observe.metric_cache.sqlite import SQLiteBackend

    return SQLiteBackend(folder / "samples.sqlite", retentions)


def restore(cache: RingMetricCache, rounds: Iterable[Round], retentions: Mapping[str, Retention], now: int) -> None:
    """Append what a backend has kept, up to ``now`` (ms). Rounds of the future would be taken for measurements of the
    moment when their time comes; the clock was ahead when they were measured."""
    for at, samples in rounds:
        retention = retentions.get(next(iter(samples)).kind.group) if samples else None
        if retention is not None and now - retention.duration * 1000 <= at <= now:
            cache.append(at, samples)
