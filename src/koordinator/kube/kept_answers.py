"""What an API server has answered about those who ask, each answer kept for its time; a question is under way once.

Nobody can use up the questions of those who are known: whoever had a good answer a short while ago is asked about again
in any case. All others together have a number of questions a second, beyond which they are told to come back.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from koordinator.base.clock import Clock
from koordinator.base.token_bucket import TokenBucket
from koordinator.kube.pages import PageError

K = TypeVar("K")
V = TypeVar("V")

AGAIN: Final = {"Retry-After": "1"}
_MOST_ANSWERS: Final = 1024
_QUESTIONS_PER_SECOND: Final = 20.0
_QUESTIONS_AT_ONCE: Final = 50
_SECONDS_GOOD: Final = 600.0
"""For so long after its last good answer, a question is put again without waiting."""


class KeptAnswers(Generic[K, V]):
    """Answers by question."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._strangers = TokenBucket(clock, _QUESTIONS_PER_SECOND, _QUESTIONS_AT_ONCE)
        self._known: OrderedDict[K, tuple[V, float]] = OrderedDict()
        """With the time until which each counts."""
        self._good: OrderedDict[K, float] = OrderedDict()
        """The time of the last good answer."""
        self._asking: dict[K, asyncio.Task[V]] = {}

    async def get(
        self, key: K, ask: Callable[[], Awaitable[V]], ttl: Callable[[V], float], is_good: Callable[[V], bool]
    ) -> V:
        """The answer, which counts for ``ttl`` seconds. Raises PageError (429), and what ``ask`` raises."""
        now = self._clock.monotonic()
        found = self._known.get(key)
        if found is not None and now < found[1]:
            return found[0]
        task = self._asking.get(key)
        if task is None:
            if now - self._good.get(key, -_SECONDS_GOOD) >= _SECONDS_GOOD and not self._strangers.take():
                raise PageError(429, f"429: {HTTPStatus(429).phrase}\n", AGAIN)
            task = asyncio.create_task(self._put(key, ask, ttl, is_good), name="ask the API server")
            self._asking[key] = task
            task.add_done_callback(lambda done: self._answered(key, done))
        # A client that goes does not take the answer from the others.
        return await asyncio.shield(task)

    def drop(self, key: K) -> None:
        """The answer counts no more."""
        self._known.pop(key, None)

    def _answered(self, key: K, task: asyncio.Task[V]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            # Where all clients have gone meanwhile, nobody else takes note of an error, which was logged already.
            task.exception()

    async def _put(
        self, key: K, ask: Callable[[], Awaitable[V]], ttl: Callable[[V], float], is_good: Callable[[V], bool]
    ) -> V:
        value = await ask()
        now = self._clock.monotonic()
        _keep(self._known, key, (value, now + ttl(value)))
        if is_good(value):
            _keep(self._good, key, now)
        else:
            self._good.pop(key, None)
        return value


def _keep(answers: OrderedDict[K, V], key: K, value: V) -> None:
    answers[key] = value
    answers.move_to_end(key)
    if len(answers) > _MOST_ANSWERS:
        answers.popitem(last=False)
