"""What a program has to say of things that last: each once while it lasts, and again when it has come back; and what it
waits for, every half minute; and of bursts, how many.

A loop goes over the same files and objects again and again. What is wrong with one of them is named when it begins, not
in each round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final

from koordinator.base.clock import Clock

_NO_LIMIT: Final = 1 << 30
_REMINDED_EVERY: Final = 30.0
_BURST_SECONDS: Final = 60.0


class Reminder:
    """When to say again what is waited for: every half minute, for the first time ``after`` seconds."""

    def __init__(self, clock: Clock, *, after: float = 0.0) -> None:
        self._monotonic = clock.monotonic
        self._due_at = clock.monotonic() + after

    def is_due(self) -> bool:
        """Whether it is time; then it is again half a minute later."""
        now = self._monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + _REMINDED_EVERY
        return True


class Bursts:
    """Of things that may happen thousands of times in a second: the first of a burst is said at once, and then at most
    once a minute how many there were since."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._said_at: dict[Hashable, float] = {}
        self._unsaid: dict[Hashable, int] = {}

    def unsaid(self, about: Hashable) -> int | None:
        """It has happened again: how many of these nothing was said of, if it is time to say something; else None."""
        now = self._monotonic()
        if now - self._said_at.get(about, -inf) < _BURST_SECONDS:
            self._unsaid[about] = self._unsaid.get(about, 0) + 1
            return None
        self._said_at[about] = now
        return self._unsaid.pop(about, 0)


class SaidOnce:
    """Of one loop. What is said, is said in a ``round``; what a round does not say is over.

    ``about`` is what a text is about, the text itself unless it is given: texts that change with every round are of one
    thing, or, with the text as a part of ``about``, each is news.
    """

    def __init__(
        self,
        logger: logging.Logger,
        clock: Clock | None = None,
        *,
        quiet_seconds: float = 0.0,
        most: int = _NO_LIMIT,
        over: Callable[[Sequence[Hashable]], str] | None = None,
    ) -> None:
        """With a clock, a thing is over only when it has not been said for ``quiet_seconds``, so that one which comes
        and goes is named once. Of what begins in one round, ``most`` are named and the others counted. ``over`` makes
        the text for the things that are over, which otherwise end silently."""
        self._logger = logger
        self._clock = clock
        self._quiet_seconds = quiet_seconds
        self._most = most
        self._over = over
        self._lasting: dict[Hashable, float] = {}
        """When each was said last."""
        self._texts: dict[Hashable, str] = {}
        """Of this round, or of the last one."""
        self._new = 0

    @contextmanager
    def round(self) -> Iterator[None]:
        """One round, which may end with an error: what it said until then counts."""
        self._texts = {}
        self._new = 0
        try:
            yield
        finally:
            self._end_round()

    def say(self, text: str, about: Hashable = None, level: int = logging.WARNING) -> bool:
        """Log the text if it is news; whether it is, for those who have more to do about it than to log."""
        key = text if about is None else about
        is_new = key not in self._lasting and key not in self._texts
        self._texts[key] = text
        if is_new:
            self._new += 1
            if self._new <= self._most:
                self._logger.log(level, "%s", text)
        return is_new

    def end(self) -> None:
        """All that was said is over."""
        with self.round():
            pass

    def __str__(self) -> str:
        """What this round has said."""
        return "; ".join(sorted(self._texts.values()))

    def _end_round(self) -> None:
        if self._new > self._most:
            self._logger.warning("and %d more like these", self._new - self._most)
        now = self._clock.monotonic() if self._clock is not None else 0.0
        quiet = [key for key, at in self._lasting.items() if key not in self._texts and now - at >= self._quiet_seconds]
        for key in quiet:
            del self._lasting[key]
        self._lasting.update(dict.fromkeys(self._texts, now))
        if quiet and self._over is not None:
            self._logger.info("%s", self._over(quiet))
