"""The file of SQLite: what it forgets, and what becomes of one that is torn. What all backends have in common is in
``test_backends``."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.backends import MetricCacheError
from koordinator.koordlet.observe.metric_cache.kinds import Round
from koordinator.koordlet.observe.metric_cache.ring import Retention
from koordinator.koordlet.observe.metric_cache.sqlite import SQLiteBackend

RETENTIONS = {kinds.NODE: Retention(1.0, 60.0), kinds.PODS: Retention(1.0, 30.0)}
CPU = kinds.NODE_CPU_USAGE.series()


def opened(path: Path) -> SQLiteBackend:
    return SQLiteBackend(path, RETENTIONS)


def pod_round(second: int, uid: str) -> Round:
    return Round(second * 1000, {kinds.POD_CPU_USAGE.series(pod_uid=uid): second / 2})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "samples.sqlite"


def fill(path: Path, seconds: range, uid: str = "a") -> None:
    backend = opened(path)
    backend.write([Round(second * 1000, {CPU: float(second)}) for second in seconds])
    backend.write([pod_round(second, uid) for second in seconds])
    backend.close()


def test_the_file_forgets_old_rounds_and_pods_that_have_ended(path: Path) -> None:
    fill(path, range(1, 11), "gone")
    backend = opened(path)
    assert len(list(backend.read())) == 20
    for second in range(100, 420):
        backend.write([Round(second * 1000, {CPU: 1.0}), pod_round(second, "here")])
    backend.close()
    database = sqlite3.connect(path)
    labels = {row[0] for row in database.execute("SELECT labels FROM series")}
    (rounds,) = database.execute("SELECT count(*) FROM rounds").fetchone()
    database.close()
    assert labels == {"[]", '["here"]'}
    assert rounds < 250


def test_a_clock_that_is_ahead_for_a_while_empties_no_file(path: Path) -> None:
    backend = opened(path)
    # The file is cleaned up after 600 rounds, here while the clock is ahead.
    backend.write([Round(at, {CPU: 1.0}) for at in (*range(580), *range(10**9, 10**9 + 20), 580)])
    backend.close()
    backend = opened(path)
    assert [each.at for each in backend.read() if each.at < 10**9] == list(range(540, 581))
    backend.close()


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 100, b"SQLite format 3\0"])
def test_a_torn_file_is_begun_anew(path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        opened(path).close()
    assert "cannot be read, and is begun anew" in caplog.text
    fill(path, range(1, 3))
    backend = opened(path)
    assert len(list(backend.read())) == 4
    backend.close()


def test_blobs_of_different_lengths_begin_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(path, range(1, 3))
    database = sqlite3.connect(path)
    with database:
        database.execute("UPDATE rounds SET samples = x'0011'")
    database.close()
    backend = opened(path)
    with caplog.at_level(logging.WARNING):
        assert list(backend.read()) == []
    assert "is begun anew" in caplog.text
    backend.write([pod_round(3, "a")])
    backend.close()
    backend = opened(path)
    assert list(backend.read()) == [pod_round(3, "a")]
    backend.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MetricCacheError, match=r"file/samples\.sqlite: "):
        opened(tmp_path / "file" / "samples.sqlite")


def test_a_disk_that_fails_is_said_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = opened(path)
    other = sqlite3.connect(path)
    other.executescript("DROP TABLE rounds")
    other.close()
    with caplog.at_level(logging.WARNING):
        for second in (1, 2):
            backend.write([pod_round(second, "a")])
    assert caplog.text.count("samples are kept in memory only") == 1
    backend.close()
