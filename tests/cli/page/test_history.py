"""What the classes had and used over the last week."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from koordinator.cli.page.history import SPANS, History, HistoryError, sample_of
from koordinator.cli.usage import Amounts, ClassUsage

HOUR, DAY = SPANS["1h"], SPANS["24h"]


def test_samples_are_read_again_in_the_step_of_their_span() -> None:
    history = History()
    for second in range(0, 240, 10):
        history.add(1_000_000_200 + second, {"used": second})
    found = asyncio.run(history.read(HOUR, 1_000_000_440))
    assert found["times"] == list(range(1_000_000_200, 1_000_000_440, 10))
    assert found["series"] == {"used": list(range(0, 240, 10))}
    coarse = asyncio.run(history.read(DAY, 1_000_000_440))
    assert coarse["times"] == [1_000_000_200, 1_000_000_320]
    assert coarse["series"]["used"] == [55, 175]


def test_a_time_without_samples_has_no_values() -> None:
    history = History()
    history.add(1000, {"used": 1})
    history.add(1030, {"used": 2})
    assert asyncio.run(history.read(HOUR, 1040))["series"] == {"used": [1, None, None, 2]}


def test_a_sample_of_a_wrong_clock_does_not_stretch_the_time() -> None:
    history = History()
    history.add(1000 + 300 * 24 * 3600, {"used": 2})
    history.add(1000, {"used": 1})
    assert asyncio.run(history.read(HOUR, 1000 + 300 * 24 * 3600))["series"] == {}
    assert asyncio.run(history.read(HOUR, 1010))["series"] == {"used": [1]}


def test_half_a_sample_is_none(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    broken: Any = {"used": 1, "given": object()}
    with pytest.raises(HistoryError):
        history.add(1000, broken)
    assert asyncio.run(history.read(HOUR, 1000))["series"] == {}


def test_nothing_is_kept_longer_than_its_span(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    for second in range(0, 8 * 24 * 3600, 3600):
        history.add(second, {"used": 1, "given": 2})
    history.close()
    rows = sqlite3.connect(tmp_path / "history").execute("SELECT step, count(*) FROM samples GROUP BY step").fetchall()
    assert rows == [(10, 2 * 2), (120, 25 * 2), (900, 169 * 2)]


def test_it_is_there_again_after_a_restart_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = History(path)
    history.add(1000, {"used": 1})
    history.close()
    assert asyncio.run(History(path).read(HOUR, 1000))["series"] == {"used": [1]}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("not a database, and long enough to be taken for one" * 40)
    with pytest.raises(HistoryError, match=r"history cannot be used.*delete it"):
        History(path)


def test_a_sample_is_of_online_pods_and_of_those_that_get_what_they_leave() -> None:
    prod = ClassUsage("koord-prod", 1, Amounts(4000), Amounts(1000))
    batch = ClassUsage("koord-batch", 1, Amounts(2000), Amounts(1500), Amounts(3000))
    assert sample_of([prod, batch]) == {
        "online_allocated": 4000,
        "online_measured": 1000,
        "batch_allocated": 2000,
        "batch_measured": 1500,
        "batch_reclaimable": 3000,
    }
