"""Appointments by key: each is kept once it is due, with bounded concurrency, and tried again later when it fails."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, NoReturn

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.kube.errors import KubeError

logger = logging.getLogger(__name__)

_BACKOFF: Final = BackoffPolicy(initial=0.5, maximum=30.0)
_LONGEST_SLEEP: Final = 3600.0


class Agenda:
    """A key has at most one appointment, and is never in two hands at once. Times are real seconds."""

    def __init__(
        self, keep: Callable[[str], Awaitable[None]], *, clock: Clock, random: Random, concurrency: int
    ) -> None:
        """``keep`` does what is due for a key; a KubeError that it raises leads to another attempt."""
        self._keep = keep
        self._clock = clock
        self._random = random
        self._concurrency = concurrency
        self._heap: list[tuple[float, int, str]] = []
        self._appointments: dict[str, int] = {}
        self._sequence = itertools.count()
        self._in_hand: set[str] = set()
        self._backoffs: dict[str, Backoff] = {}
        self._wake = asyncio.Event()

    def put(self, key: str, delay: float) -> None:
        """Make an appointment in ``delay`` seconds; it replaces the one that the key has."""
        number = next(self._sequence)
        self._appointments[key] = number
        heapq.heappush(self._heap, (self._clock.monotonic() + max(0.0, delay), number, key))
        if self._heap[0][1] == number:
            self._wake.set()

    def cancel(self, key: str) -> None:
        """Forget the key."""
        self._appointments.pop(key, None)
        self._backoffs.pop(key, None)

    async def run(self) -> NoReturn:
        """Keep appointments until cancelled."""
        async with asyncio.TaskGroup() as hands:
            while True:
                self._wake.clear()
                wait = self._hand_out(hands)
                try:
                    await within(self._clock, wait, self._wake.wait())
                except TimeoutError:
                    continue

    def _hand_out(self, hands: asyncio.TaskGroup) -> float:
        """Start what is due; the seconds until something may be due again."""
        occupied: list[tuple[float, int, str]] = []
        wait = _LONGEST_SLEEP
        while self._heap and len(self._in_hand) < self._concurrency:
            due, number, key = self._heap[0]
            if due > self._clock.monotonic():
                wait = due - self._clock.monotonic()
                break
            heapq.heappop(self._heap)
            if self._appointments.get(key) != number:
                continue
            if key in self._in_hand:
                occupied.append((due, number, key))
                continue
            del self._appointments[key]
            self._in_hand.add(key)
            hands.create_task(self._work(key), name=f"agenda {key}")
        for entry in occupied:
            heapq.heappush(self._heap, entry)
        return wait

    async def _work(self, key: str) -> None:
        try:
            await self._keep(key)
        except KubeError as error:
            self._try_again(key, error)
        else:
            self._backoffs.pop(key, None)
        finally:
            self._in_hand.discard(key)
            self._wake.set()

    def _try_again(self, key: str, error: KubeError) -> None:
        backoff = self._backoffs.get(key)
        if backoff is None:
            backoff = self._backoffs[key] = Backoff(_BACKOFF, self._clock, self._random)
        pause = backoff.next()
        logger.warning("%s: %s; trying again in %.1f s", key, error, pause)
        if key not in self._appointments:
            self.put(key, pause)
