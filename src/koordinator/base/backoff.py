"""Exponential backoff with jitter, so that clients that failed at the same time do not retry at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from koordinator.base.clock import Clock


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Durations are in seconds. A pause is the current step times a random factor in [1, 1 + jitter)."""

    initial: float
    maximum: float
    factor: float = 2.0
    jitter: float = 1.0
    reset_after: float = 120.0
    """After this many seconds without a failure, the next pause is the initial one again."""


class Backoff:
    """The backoff state of one operation that is being retried."""

    def __init__(self, policy: BackoffPolicy, clock: Clock, random: Random) -> None:
        self._policy = policy
        self._clock = clock
        self._random = random
        self._step = policy.initial
        self._last_failure = clock.monotonic()

    def next(self) -> float:
        """Return the seconds to pause after a failure that just happened."""
        policy, now = self._policy, self._clock.monotonic()
        if now - self._last_failure > policy.reset_after + self._step:
            self.reset()
        self._last_failure = now
        pause = self._step * (1 + policy.jitter * self._random.random())
        self._step = min(policy.maximum, self._step * policy.factor)
        return pause

    def reset(self) -> None:
        """Start again from the initial pause."""
        self._step = self._policy.initial
