"""Named loops of a program: each with a deadline, a heartbeat and a pause that grows with failures.

A loop whose iteration fails goes on; what it does is seen in its metrics and, through ``check``, in a health endpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics, exponential_buckets

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` is run, then ``interval`` seconds (± ``jitter``, a fraction) pass, and so on."""

    name: str
    body: Callable[[], Awaitable[None]]
    interval: float
    deadline: float
    """Seconds that one iteration may take; it is cancelled then."""
    jitter: float = 0.0
    initial_delay: float = 0.0


class LoopSupervisor:
    """Runs loops side by side until cancelled."""

    def __init__(self, *, clock: Clock, random: Random, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._random = random
        self._loops: dict[str, Loop] = {}
        self._alive_at: dict[str, float] = {}
        metrics = metrics or Metrics()
        self._heartbeat = metrics.gauge(
            "loop_last_success_timestamp_seconds", "Unix time at which the loop last succeeded", ("loop",)
        )
        self._errors = metrics.counter("loop_errors_total", "Iterations that failed or ran out of time", ("loop",))
        self._duration = metrics.histogram(
            "loop_duration_seconds",
            "How long one iteration takes",
            ("loop",),
            buckets=exponential_buckets(0.001, 2, 15),
        )

    def add(self, loop: Loop) -> None:
        """Add a loop before ``run``; ValueError when its name is taken."""
        if loop.name in self._loops:
            raise ValueError(f"loop {loop.name!r} exists")
        self._loops[loop.name] = loop
        # So that the series exist before anything has happened.
        self._errors.labels(loop.name)

    async def run(self) -> None:
        """Run all loops until cancelled; the iterations in hand are cancelled and awaited."""
        async with asyncio.TaskGroup() as tasks:
            for loop in self._loops.values():
                self._alive_at[loop.name] = self._clock.monotonic() + loop.initial_delay
                tasks.create_task(self._repeat(loop), name=f"loop {loop.name}")

    def check(self, missed: float = 5.0) -> str:
        """For health checks: the loops without success for ``missed`` times as long as an iteration may take."""
        now = self._clock.monotonic()
        late = [
            f"{name} has not succeeded for {now - alive_at:.0f}s"
            for name, alive_at in self._alive_at.items()
            if now - alive_at > missed * (self._loops[name].interval + self._loops[name].deadline)
        ]
        return "; ".join(late)

    async def _repeat(self, loop: Loop) -> None:
        policy = BackoffPolicy(initial=max(loop.interval, 0.1), maximum=max(loop.interval * 8, 30.0), jitter=0.25)
        backoff = Backoff(policy, self._clock, self._random)
        if loop.initial_delay > 0:
            await self._clock.sleep(loop.initial_delay)
        while True:
            succeeded = await self._iterate(loop)
            if succeeded:
                backoff.reset()
                pause = loop.interval * (1 + loop.jitter * self._random.uniform(-1, 1))
            else:
                pause = backoff.next()
            await self._clock.sleep(pause)

    async def _iterate(self, loop: Loop) -> bool:
        started = self._clock.monotonic()
        try:
            await within(self._clock, loop.deadline, _awaited(loop.body()))
        except TimeoutError:
            logger.warning("loop %s: cancelled after its deadline of %gs", loop.name, loop.deadline)
        except KoordinatorError as error:
            logger.warning("loop %s: %s", loop.name, error)
        except Exception:
            logger.exception("loop %s failed", loop.name)
        else:
            self._alive_at[loop.name] = self._clock.monotonic()
            self._heartbeat.labels(loop.name).set(self._clock.now().timestamp())
            self._duration.labels(loop.name).observe(self._clock.monotonic() - started)
            return True
        self._errors.labels(loop.name).inc()
        return False


async def _awaited(work: Awaitable[None]) -> None:
    await work
