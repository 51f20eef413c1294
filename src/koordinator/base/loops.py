"""Named loops of a program, each with a deadline and a heartbeat metric that shows whether it still works.

``LoopSupervisor`` runs loops at an interval; after a failed iteration, the pause grows (backoff). Loops that wait for
work record their iterations with a ``Heartbeat``, or are run by ``Heartbeat.watch`` if they have no distinct
iterations.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import coroutine
from typing import Any, Final, TypeVar

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics, exponential_buckets

logger = logging.getLogger(__name__)

T = TypeVar("T")
STEP_SECONDS: Final = 1.0
"""How long one step of a watched loop may block the event loop."""


class Heartbeat:
    """The metrics of one loop; created by ``LoopMetrics.loop``."""

    def __init__(self, name: str, deadline: float, clock: Clock, metrics: LoopMetrics) -> None:
        self.name = name
        self.deadline = deadline
        """The seconds that one iteration may take."""
        self._clock = clock
        self._beaten_at: float | None = None
        self._metrics = metrics
        # So that the series exist before the first iteration.
        self._errors = metrics.errors.labels(name)
        self._duration = metrics.duration.labels(name)

    async def iterate(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one iteration; TimeoutError if it does not end within the deadline."""
        with self.iteration():
            return await within(self._clock, self.deadline, work)

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """A context around an iteration that enforces its own time limit. An exception counts as an error and
        propagates."""
        started = self._clock.monotonic()
        try:
            yield
        except Exception:
            self._errors.inc()
            raise
        self._duration.observe(self._clock.monotonic() - started)
        self.beat()

    async def watch(self, body: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await ``body``, whose iterations are the steps from one await to the next.

        A step that takes longer than the deadline is counted and logged as an error, because it blocks the event loop.
        """
        return await self._steps(body())

    @coroutine
    def _steps(self, loop: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        monotonic, observe, deadline = self._clock.monotonic, self._duration.observe, self.deadline
        proceed: Callable[[Any], Any] = loop.send
        argument: Any = None
        self.beat()
        while True:
            started = monotonic()
            try:
                awaited = proceed(argument)
            except StopIteration as end:
                result: T = end.value
                return result
            self._beaten_at = ended = monotonic()
            observe(ended - started)
            if ended - started > deadline:
                self._errors.inc()
                logger.warning("loop %s kept everything else waiting for %.1fs", self.name, ended - started)
            try:
                argument, proceed = (yield awaited), loop.send
            except BaseException as error:
                # Exceptions thrown in, above all cancellation, are meant for the loop.
                argument, proceed = error, loop.throw

    def timed(self, seconds: float) -> None:
        """Record an iteration that must not be cancelled at the deadline; if it took longer, it counts as an error."""
        self._duration.observe(seconds)
        if seconds > self.deadline:
            self._errors.inc()
        else:
            self.beat()

    def beat(self) -> None:
        """Record a successful iteration that ended just now."""
        if self._beaten_at is None:
            self._metrics.heartbeat.labels(self.name).set_function(self._last_success)
        self._beaten_at = self._clock.monotonic()

    def seconds_since(self) -> float | None:
        """Return the seconds since the last success; None before the first."""
        return None if self._beaten_at is None else self._clock.monotonic() - self._beaten_at

    def _last_success(self) -> float:
        return self._clock.now().timestamp() - (self.seconds_since() or 0.0)


class LoopMetrics:
    """The heartbeats of a program's loops."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self.heartbeat = metrics.gauge(
            "loop_last_success_timestamp_seconds", "Unix time at which the loop last succeeded", ("loop",)
        )
        self.errors = metrics.counter("loop_errors_total", "Iterations that failed or ran out of time", ("loop",))
        self.duration = metrics.histogram(
            "loop_duration_seconds",
            "How long one iteration takes",
            ("loop",),
            buckets=exponential_buckets(0.001, 2, 15),
        )

    def loop(self, name: str, deadline: float = STEP_SECONDS) -> Heartbeat:
        """Create the heartbeat of the loop ``name``, whose iterations may take ``deadline`` seconds."""
        return Heartbeat(name, deadline, self._clock, self)

    def forget(self, name: str) -> None:
        """The loop has ended: that it succeeds no more is no fault."""
        self.heartbeat.remove(name)


@dataclass(frozen=True, slots=True)
class Loop:
    """Run ``body``, pause for ``interval`` seconds (± ``jitter``, a fraction), and repeat."""

    name: str
    body: Callable[[], Awaitable[None]]
    interval: float
    deadline: float
    """The seconds that one iteration may take; it is cancelled then."""
    jitter: float = 0.0
    initial_delay: float = 0.0


class LoopSupervisor:
    """Runs loops concurrently until cancelled."""

    def __init__(self, *, clock: Clock, random: Random, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._random = random
        self._loops: dict[str, Loop] = {}
        self._heartbeats: dict[str, Heartbeat] = {}
        self._alive_at: dict[str, float] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self.metrics = LoopMetrics(clock, metrics or Metrics())
        """For heartbeats of loops that this supervisor does not run."""

    def add(self, loop: Loop) -> None:
        """Add a loop before ``run``, later ones by ``replace``; ValueError if its name exists already."""
        if loop.name in self._loops:
            raise ValueError(f"loop {loop.name!r} exists")
        self._loops[loop.name] = loop
        self._heartbeats[loop.name] = self.metrics.loop(loop.name, loop.deadline)

    def replace(self, names: Iterable[str], loops: Iterable[Loop]) -> None:
        """These loops instead of those with the names, also while they run. One that has the name, the interval and
        the deadline of one before goes on undisturbed; the current iteration of any other is cancelled."""
        wanted = {loop.name: loop for loop in loops}
        for name in names:
            before, loop = self._loops[name], wanted.get(name)
            if loop is not None and (loop.interval, loop.deadline) == (before.interval, before.deadline):
                del wanted[name]
                continue
            del self._loops[name], self._heartbeats[name]
            self.metrics.forget(name)
            self._alive_at.pop(name, None)
            if (task := self._running.pop(name, None)) is not None:
                task.cancel()
        for loop in wanted.values():
            self.add(loop)
            if self._tasks is not None:
                self._start(loop, self._tasks)

    async def run(self) -> None:
        """Run all loops until cancelled; then cancel and await the current iterations."""
        async with asyncio.TaskGroup() as self._tasks:
            for loop in self._loops.values():
                self._start(loop, self._tasks)

    def _start(self, loop: Loop, tasks: asyncio.TaskGroup) -> None:
        self._alive_at[loop.name] = self._clock.monotonic() + loop.initial_delay
        self._running[loop.name] = tasks.create_task(self._repeat(loop), name=f"loop {loop.name}")

    def check(self, missed: float = 5.0) -> str:
        """Health check: return the loops without a success for ``missed`` times as long as an iteration may take, as
        text."""
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
        try:
            await self._heartbeats[loop.name].iterate(_awaited(loop.body()))
        except TimeoutError:
            logger.warning("loop %s: cancelled after its deadline of %gs", loop.name, loop.deadline)
        except KoordinatorError as error:
            logger.warning("loop %s: %s", loop.name, error)
        except Exception:
            logger.exception("loop %s failed", loop.name)
        else:
            self._alive_at[loop.name] = self._clock.monotonic()
            return True
        return False


async def _awaited(work: Awaitable[None]) -> None:
    await work
