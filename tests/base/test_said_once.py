"""What lasts is said once, and again when it has come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.said_once import Reminder, SaidOnce

logger = logging.getLogger(__name__)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, logger.name):
        yield caplog


def named(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.name == logger.name]


def rounds(said: SaidOnce, *texts: tuple[str, ...], about: str | None = None) -> None:
    for each in texts:
        with said.round():
            for text in each:
                said.say(text, about)


def test_what_lasts_is_said_once_and_what_comes_back_again(log: pytest.LogCaptureFixture) -> None:
    rounds(SaidOnce(logger), ("a", "a"), ("a", "b"), (), ("a",))
    assert log.messages == ["a", "b", "a"]


def test_texts_about_one_thing_are_one(log: pytest.LogCaptureFixture) -> None:
    rounds(SaidOnce(logger), ("1 is odd",), ("2 is odd",), about="file")
    assert log.messages == ["1 is odd"]


def test_who_says_it_learns_whether_it_is_news_and_may_say_it_softly(log: pytest.LogCaptureFixture) -> None:
    said = SaidOnce(logger)
    with said.round():
        news = [said.say("why", ("strategy", "why"), logging.DEBUG) for _ in range(2)]
    assert news == [True, False]
    assert [record.levelname for record in log.records] == ["DEBUG"]


def test_a_round_that_fails_has_said_what_it_said(log: pytest.LogCaptureFixture) -> None:
    said = SaidOnce(logger)

    def fail() -> None:
        with said.round():
            said.say("a")
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert str(said) == "a"
    rounds(said, ("a",))
    assert log.messages == ["a"]


def test_what_comes_and_goes_is_named_once_until_it_has_been_quiet(log: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    said = SaidOnce(logger, clock, quiet_seconds=300, over=lambda keys: f"over: {list(keys)}")
    for at in range(0, 600, 100):
        rounds(said, ("a",) if at in (0, 200) else ())
        asyncio.run(clock.advance(100))
    assert named(log) == ["a", "over: ['a']"]
    rounds(said, ("a",))
    assert named(log)[-1] == "a"


def test_of_many_that_begin_together_some_are_named(log: pytest.LogCaptureFixture) -> None:
    said = SaidOnce(logger, most=2)
    rounds(said, ("a", "b", "c", "d"), ("a", "b", "c", "d", "e"))
    assert log.messages == ["a", "b", "and 2 more like these", "e"]


def test_what_is_waited_for_is_said_every_half_minute() -> None:
    async def scenario() -> list[tuple[float, str]]:
        clock = ManualClock()
        at_once, later = Reminder(clock), Reminder(clock, after=10)
        said = list[tuple[float, str]]()
        for _ in range(71):
            said += [(clock.monotonic(), name) for name, each in (("a", at_once), ("b", later)) if each.is_due()]
            await clock.advance(1)
        return said

    assert asyncio.run(scenario()) == [(0, "a"), (10, "b"), (30, "a"), (40, "b"), (60, "a"), (70, "b")]
