"""Samples outlive the process, whatever becomes of the file."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.ring import Retention
from koordinator.koordlet.observe.metric_cache.sqlite import MetricCacheError, SQLiteMetricCache

RETENTIONS = {kinds.NODE: Retention(1.0, 60.0), kinds.PODS: Retention(1.0, 30.0)}
CPU = kinds.NODE_CPU_USAGE.series()


def open_cache(path: Path, now: int = 0) -> SQLiteMetricCache:
    return SQLiteMetricCache(RETENTIONS, 1 << 20, path, now)


def pod_series(uid: str) -> kinds.Series:
    return kinds.POD_CPU_USAGE.series(pod_uid=uid)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "samples.sqlite"


def fill(path: Path, seconds: range, uid: str = "a") -> None:
    cache = open_cache(path)
    for second in seconds:
        cache.append(second * 1000, {CPU: float(second)})
        cache.append(second * 1000, {pod_series(uid): second / 2})
    cache.close()


def test_samples_are_there_again(path: Path) -> None:
    fill(path, range(1, 11))
    cache = open_cache(path, 10_000)
    assert list(cache.select(kinds.NODE_CPU_USAGE, 1000, 10_000).values) == [float(second) for second in range(1, 11)]
    assert cache.select(kinds.POD_CPU_USAGE, 0, 10_000, pod_uid="a").values[-1] == 5.0
    cache.close()


def test_what_was_flushed_outlives_a_kill(path: Path) -> None:
    cache = open_cache(path)
    cache.append(1000, {CPU: 1.0})
    cache.flush()
    cache.append(2000, {CPU: 2.0})
    other = open_cache(path, 3000)
    assert list(other.select(kinds.NODE_CPU_USAGE, 0, 3000).values) == [1.0]
    other.close()
    cache.close()


def test_samples_older_than_the_retention_stay_away(path: Path) -> None:
    fill(path, range(1, 61))
    cache = open_cache(path, 61_000)
    assert len(cache.select(kinds.NODE_CPU_USAGE, 0, 61_000)) == 60
    assert cache.select(kinds.POD_CPU_USAGE, 0, 61_000, pod_uid="a").times[0] == 31_000
    cache.close()


def test_samples_of_the_future_stay_away(path: Path) -> None:
    fill(path, range(1, 11))
    cache = open_cache(path, 5000)
    assert cache.select(kinds.NODE_CPU_USAGE, 0, 10_000).values[-1] == 5.0
    cache.close()


def test_the_file_forgets_old_rounds_and_pods_that_have_ended(path: Path) -> None:
    fill(path, range(1, 11), "gone")
    cache = open_cache(path, 10_000)
    for second in range(100, 420):
        cache.append(second * 1000, {CPU: 1.0})
        cache.append(second * 1000, {pod_series("here"): 1.0})
        cache.flush()
    cache.close()
    database = sqlite3.connect(path)
    labels = {row[0] for row in database.execute("SELECT labels FROM series")}
    (rounds,) = database.execute("SELECT count(*) FROM rounds").fetchone()
    database.close()
    assert labels == {"[]", '["here"]'}
    assert rounds < 250


def kept_times(path: Path) -> list[int]:
    database = sqlite3.connect(path)
    times = [row[0] for row in database.execute("SELECT at FROM rounds WHERE kind_group = 'node' ORDER BY at")]
    database.close()
    return times


def test_a_clock_that_is_ahead_for_a_while_empties_no_file(path: Path) -> None:
    cache = open_cache(path)
    # The file is cleaned up after 600 rounds, here while the clock is ahead.
    for at in [*range(580), *range(10**9, 10**9 + 20), 580]:
        cache.append(at, {CPU: 1.0})
        cache.flush()
    cache.close()
    assert kept_times(path) == list(range(539, 581))


def test_samples_of_the_future_leave_the_file(path: Path) -> None:
    cache = open_cache(path)
    cache.append(10**9, {CPU: 1.0})
    cache.flush()
    cache.append(1000, {CPU: 1.0})
    cache.flush()
    cache.close()
    assert kept_times(path) == [1000]


def test_samples_of_the_future_leave_the_file_at_a_start(path: Path) -> None:
    fill(path, range(1, 11))
    open_cache(path, 5000).close()
    assert kept_times(path) == [1000, 2000, 3000, 4000, 5000]


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 100, b"SQLite format 3\0"])
def test_a_torn_file_is_begun_anew(path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        open_cache(path).close()
    assert "cannot be read, and is begun anew" in caplog.text
    fill(path, range(1, 3))
    cache = open_cache(path, 2000)
    assert len(cache.select(kinds.NODE_CPU_USAGE, 0, 2000)) == 2
    cache.close()


def test_blobs_of_different_lengths_begin_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(path, range(1, 3))
    database = sqlite3.connect(path)
    with database:
        database.execute("UPDATE rounds SET samples = x'0011'")
    database.close()
    with caplog.at_level(logging.WARNING):
        open_cache(path, 3000).close()
    assert "is begun anew" in caplog.text


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MetricCacheError, match=r"file/samples\.sqlite: "):
        open_cache(tmp_path / "file" / "samples.sqlite")


def test_a_disk_that_fails_costs_the_copy_only(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = open_cache(path)
    other = sqlite3.connect(path)
    other.executescript("DROP TABLE rounds")
    other.close()
    with caplog.at_level(logging.WARNING):
        for second in (1, 2):
            cache.append(second * 1000, {CPU: 1.0})
            cache.flush()
    assert len(cache.select(kinds.NODE_CPU_USAGE, 0, 2000)) == 2
    assert caplog.text.count("samples are kept in memory only") == 1
    cache.close()
