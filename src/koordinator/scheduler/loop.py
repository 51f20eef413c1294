"""The scheduling loop: takes pods from the queue, decides, assumes, hands over to the binder, and deals with failure.

Decisions are made in short slices between which everything else on the event loop gets its turn: watches are read,
bindings sent, health checks answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.logs import verbosity
from koordinator.scheduler.binding import Binder, Binding, Outcome, Result
from koordinator.scheduler.engine.decision import Attempt, DecisionLog, Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.failure_report import Events, Failure, FailureReason, FailureReporter
from koordinator.scheduler.feed import Feed
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue

logger = logging.getLogger(__name__)

_EACH_DECISION: Final = verbosity(5)
_SLICE_SECONDS: Final = 0.004
_SAME_ERROR_SECONDS: Final = 60.0
_ERRORS_REMEMBERED: Final = 100
_LONGEST_PAUSE: Final = 30.0


class SchedulingLoop:
    """``run`` schedules until cancelled. ``engines`` by scheduler name."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        queue: SchedulingQueue,
        decisions: DecisionLog,
        metrics: SchedulerMetrics,
        clock: Clock,
    ) -> None:
        self._engines = engines
        self._queue = queue
        self._decisions = decisions
        self._metrics = metrics
        self._clock = clock
        self._work = asyncio.Event()
        self._logged: dict[str, float] = {}
        """When an error was last logged, by its text."""
        self._feed: Feed
        self._binder: Binder
        self._reporter: FailureReporter
        self._events: Events

    def attach(self, feed: Feed, binder: Binder, reporter: FailureReporter, events: Events) -> None:
        """The parts that in turn call the loop."""
        self._feed, self._binder, self._reporter, self._events = feed, binder, reporter, events

    def wake(self) -> None:
        """There may be something to do."""
        self._work.set()

    async def run(self) -> None:
        while True:
            self._work.clear()
            more = self._slice()
            if more:
                await asyncio.sleep(0)
            else:
                await self._pause()

    def finished(self, binding: Binding, outcome: Outcome) -> None:
        """A binding has ended; called by the binder."""
        entry, placement = binding.entry, binding.placement
        pod = placement.pod
        if outcome.result is Result.BOUND:
            self._bound(binding, outcome)
        else:
            binding.engine.forget(placement)
            if outcome.pod is not None and outcome.pod.spec.node_name:
                self._feed.set_pod(outcome.pod)
            if outcome.result is Result.REFUSED:
                self._failed(entry, binding.started, "SchedulerError", f"binding rejected: {outcome.detail}")
            else:
                logger.info("pod %s was not bound to %s: %s", pod.key, placement.node_name, outcome.result.value)
                self._queue.remove(pod.uid)
        self._work.set()

    def _slice(self) -> bool:
        """Decide about pods until the time is up; returns whether there are more."""
        queue, binder, monotonic = self._queue, self._binder, self._clock.monotonic
        end = monotonic() + _SLICE_SECONDS
        while binder.has_room:
            entry = queue.pop()
            if entry is None:
                return False
            self._attempt(entry)
            if monotonic() >= end:
                return True
        return False

    async def _pause(self) -> None:
        deadline = self._queue.next_deadline()
        seconds = _LONGEST_PAUSE
        if deadline is not None and self._binder.has_room:
            seconds = min(max(deadline - self._clock.monotonic(), 0.001), _LONGEST_PAUSE)
        try:
            await within(self._clock, seconds, self._work.wait())
        except TimeoutError:
            return

    def _attempt(self, entry: QueuedPod) -> None:
        pod, started = entry.pod, self._clock.monotonic()
        engine = self._engines[pod.pod.spec.scheduler_name]
        try:
            result = engine.decide(pod, self._clock.now())
            decided = self._clock.monotonic()
            self._metrics.algorithm(decided - started)
            if isinstance(result, Placement):
                engine.assume(result)
        except PluginError as error:
            self._log_error(pod.key, error)
            self._decisions.add(pod.key, Attempt(self._clock.now(), entry.attempts, error=str(error)))
            self._failed(entry, started, "SchedulerError", str(error))
            return
        if isinstance(result, Placement):
            self._decisions.add(pod.key, Attempt(self._clock.now(), entry.attempts, placement=result))
            self._binder.submit(Binding(entry, result, engine, started))
            return
        self._decisions.add(pod.key, Attempt(self._clock.now(), entry.attempts, rejection=result))
        logger.log(_EACH_DECISION, "pod %s fits nowhere: %s", pod.key, result.message)
        self._queue.park(entry, result.wakes_on, result.message)
        self._tell(entry, started, "Unschedulable", result.message)

    def _log_error(self, key: str, error: PluginError) -> None:
        """With its origin, but each only now and then: a plugin that fails does so for one pod after the other."""
        now, text = self._clock.monotonic(), str(error)
        if now - self._logged.get(text, float("-inf")) < _SAME_ERROR_SECONDS:
            return
        if len(self._logged) >= _ERRORS_REMEMBERED:
            self._logged.clear()
        self._logged[text] = now
        logger.error("pod %s could not be decided about: %s", key, error, exc_info=error.__cause__ or error)

    def _bound(self, binding: Binding, outcome: Outcome) -> None:
        entry, placement = binding.entry, binding.placement
        pod = placement.pod
        for plugin in binding.engine.profile.post_bind:
            plugin.post_bind(pod, placement.node_name)
        self._queue.remove(pod.uid)
        self._reporter.drop(pod.uid)
        if outcome.pod is not None:
            self._feed.set_pod(outcome.pod)
        now = self._clock.monotonic()
        self._metrics.scheduled(
            binding.engine.profile.scheduler_name, now - binding.started, now - entry.created_at, entry.attempts
        )
        for name in placement.kept_off_by:
            self._metrics.kept_off(name)
        note = f"Successfully assigned {pod.key} to {placement.node_name}"
        self._events.pod_event(pod.pod, "Normal", "Scheduled", "Binding", note)
        logger.log(_EACH_DECISION, "%s", note)

    def _failed(self, entry: QueuedPod, started: float, reason: FailureReason, message: str) -> None:
        self._queue.retry(entry, message)
        self._tell(entry, started, reason, message)

    def _tell(self, entry: QueuedPod, started: float, reason: FailureReason, message: str) -> None:
        pod = entry.pod.pod
        self._metrics.failed(pod.spec.scheduler_name, reason, self._clock.monotonic() - started)
        if pod.metadata.uid in self._queue:
            self._reporter.report(Failure(pod, reason, message))
