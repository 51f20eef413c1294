from __future__ import annotations

from datetime import timedelta

import pytest

from koordinator.cluster.strategy.table import age, human_duration
from tests.cluster.corpus import NOW

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86_400, 365 * 86_400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (3 * MINUTE + 20, "3m20s"),
        (10 * MINUTE, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (7 * DAY + 23 * HOUR, "7d23h"),
        (8 * DAY, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR + 35 * DAY, "2y35d"),
        (8 * YEAR + DAY, "8y"),
    ],
)
def test_human_duration(seconds: int, text: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == text


def test_age_of_nothing() -> None:
    assert age(None, NOW) == "<unknown>"
