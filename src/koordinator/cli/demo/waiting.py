"""How the day waits: until what has to have happened has happened, for as long as anything goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.deadline import unless
from koordinator.base.errors import KoordinatorError

PATIENCE_SECONDS: Final = 180.0
"""After so much time in which nothing has changed, what is waited for does not come any more."""
_LONGEST_SECONDS: Final = 3600.0
"""Something that changes again and again without an end does not come either."""
_SAID_AFTER_SECONDS: Final = 1.0
_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.25

Missing = Callable[[], Awaitable[str]]
"""What is still missing, in words and with numbers; empty when nothing is. A change of it is progress."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Something that has to have happened before the day goes on."""

    what: str
    missing: Missing
    advice: Sequence[str]
    """What to try when it does not happen."""
    is_watched: bool = False
    """Whether a watch says when it may have happened; where none does, it is looked at again and again."""


class NeverHappened(KoordinatorError):
    """What the day waits for did not happen."""

    def __init__(self, when: str, expectation: Expectation, seen: str, seconds: float) -> None:
        super().__init__(f"at {when} of the simulated day: {expectation.what}: {seen}")
        self.when = when
        self.expected = expectation.what
        self.seen = f"{seen}; nothing has changed for {seconds:.0f} s"
        self.advice = tuple(expectation.advice)


class Waiting:
    """Waits for one expectation at a time. ``changed`` is set by watches; ``say`` is told what is waited for."""

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._say = say
        self.changed = asyncio.Event()

    async def until(self, when: str, expectation: Expectation) -> None:
        """Return when it has happened. Raises NeverHappened."""
        began = changed_at = self._clock.monotonic()
        before, pause = "", _SHORTEST_PAUSE
        while True:
            self.changed.clear()
            seen = await expectation.missing()
            if not seen:
                return
            now = self._clock.monotonic()
            if seen != before:
                before, changed_at, pause = seen, now, _SHORTEST_PAUSE
            if now - changed_at >= PATIENCE_SECONDS or now - began >= _LONGEST_SECONDS:
                raise NeverHappened(when, expectation, seen, now - changed_at)
            if now - began >= _SAID_AFTER_SECONDS:
                self._say(f"waiting until {expectation.what} ({seen})")
            if expectation.is_watched:
                # To say it in time, and to give up in time.
                pause = PATIENCE_SECONDS if now - began >= _SAID_AFTER_SECONDS else _SAID_AFTER_SECONDS
                await unless(self.changed, self._clock.sleep(pause))
            else:
                await self._clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
