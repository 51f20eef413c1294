"""How often a request that fails is made, and the pauses in between, for callers that wait without holding anything."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.kube.errors import (
    ApiStatusError,
    FencedError,
    KubeError,
    MalformedObjectError,
    TransportError,
    UnsentError,
    WriteRefusedError,
)
from koordinator.kube.request_slots import is_of_the_request

T = TypeVar("T")

_FINAL: Final = (FencedError, MalformedObjectError, UnsentError, WriteRefusedError)
_PAUSES: Final = BackoffPolicy(initial=0.2, maximum=5.0)


@dataclass(frozen=True, slots=True)
class Patience:
    """``seconds``: the last attempt begins within them. ``longest_pause``: a server that wants more seconds than this
    is not waited for."""

    attempts: int = 5
    seconds: float = 30.0
    longest_pause: float = 10.0
    pauses: BackoffPolicy = _PAUSES


PATIENCE: Final = Patience()


class Attempts:
    """The attempts of one request; the first one is under way."""

    def __init__(self, patience: Patience, clock: Clock, random: Random) -> None:
        self.count = 1
        self._patience = patience
        self._monotonic = clock.monotonic
        self._until = clock.monotonic() + patience.seconds
        self._backoff = Backoff(patience.pauses, clock, random)

    def pause_after(self, error: KubeError) -> float | None:
        """The seconds until the next attempt; None if ``error`` is to be the end. One that the server never saw is
        not counted, since it says nothing of the request."""
        if isinstance(error, _FINAL) or is_of_the_request(error):
            return None
        is_unseen = isinstance(error, TransportError) and not error.maybe_applied
        if not is_unseen:
            if self.count >= self._patience.attempts:
                return None
            self.count += 1
        pause, asked = self._backoff.next(), error.retry_after if isinstance(error, ApiStatusError) else None
        if asked is not None:
            if asked > self._patience.longest_pause:
                return None
            # It is spread, or all that an overloaded server turns away would come back at one moment.
            pause = asked + min(pause, 1.0)
        return pause if self._monotonic() + pause <= self._until else None


async def persist(request: Callable[[], Coroutine[Any, Any, T]], attempts: Attempts, clock: Clock) -> T:
    """Make a request that may be repeated until it succeeds or ``attempts`` are over. Raises its last error."""
    while True:
        try:
            return await request()
        except KubeError as error:
            pause = attempts.pause_after(error)
            if pause is None:
                raise
        await clock.sleep(pause)
