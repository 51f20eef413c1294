"""The memory of decisions is bounded, and gives back the latest first."""

from __future__ import annotations

from datetime import UTC, datetime

from koordinator.scheduler.cycle.loop import DecisionLog
from koordinator.scheduler.engine.decision import Attempt

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def attempt(number: int) -> Attempt:
    return Attempt(NOW, number, error="x")


def test_only_the_last_attempts_of_a_pod_are_kept() -> None:
    log = DecisionLog(attempts=3)
    for number in range(5):
        log.add("default/a", attempt(number))
    assert [each.number for each in log.attempts("default/a")] == [2, 3, 4]


def test_the_pod_that_was_tried_longest_ago_makes_room() -> None:
    log = DecisionLog(pods=2)
    for key in ("default/a", "default/b", "default/a", "default/c"):
        log.add(key, attempt(1))
    assert (len(log.attempts("default/a")), log.attempts("default/b")) == (2, ())


def test_the_pod_that_was_tried_last_comes_first() -> None:
    log = DecisionLog()
    for key in ("default/a", "default/b", "default/a"):
        log.add(key, attempt(1))
    assert [key for key, _ in log.latest()] == ["default/a", "default/b"]
