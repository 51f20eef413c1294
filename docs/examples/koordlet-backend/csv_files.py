"""A backend of koordlet's metric cache: its samples in CSV files, which pandas, DuckDB or a spreadsheet reads.

    1767225600000,pod_cpu_usage,0.25,6c1f
    time in ms,name of the kind,value,values of its labels

Each group of kinds has a file, ``node.csv`` say. When that has as many rounds as are to be kept, it becomes
``node.1.csv`` in place of the one before: so a file is only ever appended to, and what is on disk is bounded.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from koordinator.koordlet.observe.metric_cache.backends import MetricCacheError
from koordinator.koordlet.observe.metric_cache.kinds import KINDS, Round, Series
from koordinator.koordlet.observe.metric_cache.ring import Retention

logger = logging.getLogger(__name__)


class _Format(csv.Dialect):
    """Without quotation marks, of which a torn line could have the first without the second."""

    delimiter, escapechar, quoting, lineterminator = ",", "\\", csv.QUOTE_NONE, "\n"


def open_files(folder: Path, retentions: Mapping[str, Retention]) -> CSVFiles:
    """Called once, when koordlet starts with ``--metric-cache-backend=example.com/csv-files``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return CSVFiles(folder, retentions)
    except OSError as error:
        raise MetricCacheError(f"{folder}: {error}") from error


class CSVFiles:
    def __init__(self, folder: Path, retentions: Mapping[str, Retention]) -> None:
        self._files = {group: _GroupFile(folder, group, retention.rows) for group, retention in retentions.items()}
        self._problem = ""

    def read(self) -> Iterator[Round]:
        """Within a group in the order in which they were written."""
        for file in self._files.values():
            yield from file.read()

    def write(self, rounds: Sequence[Round]) -> None:
        """A full disk costs the samples of these rounds. What is raised here switches the backend off for good."""
        by_group: dict[str, list[Round]] = {}
        for each in rounds:
            by_group.setdefault(next(iter(each.samples)).kind.group, []).append(each)
        try:
            for group, of_group in by_group.items():
                self._files[group].write(of_group)
            self._problem = ""
        except OSError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                logger.warning("samples are kept in memory only: %s", error)

    def close(self) -> None:
        """Nothing is held open between two writes."""


class _GroupFile:
    def __init__(self, folder: Path, group: str, rounds: int) -> None:
        self._group = group
        self._path, self._before = folder / f"{group}.csv", folder / f"{group}.1.csv"
        self._most = rounds
        if self._path.exists():
            _drop_torn_line(self._path)
        self._rounds = sum(1 for _ in self._rounds_of(self._path))

    def read(self) -> Iterator[Round]:
        for path in (self._before, self._path):
            yield from self._rounds_of(path)

    def write(self, rounds: Sequence[Round]) -> None:
        with self._path.open("a", newline="") as file:
            writer = csv.writer(file, _Format)
            for at, samples in rounds:
                writer.writerows((at, each.kind.name, repr(value), *each.values) for each, value in samples.items())
        self._rounds += len(rounds)
        if self._rounds >= self._most:
            self._path.replace(self._before)
            self._rounds = 0

    def _rounds_of(self, path: Path) -> Iterator[Round]:
        if not path.exists():
            return
        with path.open(newline="", errors="replace") as file:
            samples = (each for each in map(self._sample, _rows(file)) if each is not None)
            for at, of_round in groupby(samples, key=lambda each: each[0]):
                yield Round(at, {series: value for _, series, value in of_round})

    def _sample(self, row: Sequence[str]) -> tuple[int, Series, float] | None:
        """None for a row that makes no sense: it was torn, or is of another version of koordlet."""
        try:
            at, name, value, *labels = row
            kind = KINDS[name]
            if kind.group != self._group or len(labels) != len(kind.labels):
                return None
            return int(at), Series(kind, tuple(labels)), float(value)
        except (ValueError, KeyError):
            return None


def _drop_torn_line(path: Path) -> None:
    """A process was killed in the middle of it: what is there of a figure may be another figure."""
    with path.open("r+b") as file:
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))


def _rows(file: Iterable[str]) -> Iterator[list[str]]:
    """Without those that are too long, as after a loss of power."""
    reader = csv.reader(file, _Format)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue
