"""The scheduling loop: takes pods from the queue, decides, assumes and submits bindings.

Decisions are made in short time slices between which other tasks of the event loop run: watches are read, bindings
sent, health checks served.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.logs import verbosity
from koordinator.scheduler.binding.binder import Binder
from koordinator.scheduler.binding.binding_cycle import Binding, Outcome, Result, pod_binding
from koordinator.scheduler.cycle.failed_attempts import FailedAttempts
from koordinator.scheduler.cycle.failure_report import FailureReporter
from koordinator.scheduler.cycle.measurement import SchedulerMonitor
from koordinator.scheduler.debug_output import DebugOutput
from koordinator.scheduler.engine.decision import Attempt, Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import EventHandler, Plugin, PluginError
from koordinator.scheduler.engine.framework_hooks import NextPodPlugin
from koordinator.scheduler.engine.handle import Events
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.plugin_errors import PluginErrors
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from koordinator.scheduler.watch.event_handlers import EventHandlers


class TimeEvents:
    """Reports changes by time alone: ``announce`` reports those that are due to unschedulable pods, ``next_deadline``
    returns when the next ones are."""

    def __init__(
        self, profiles: Iterable[Profile], clock: Clock, notify: Callable[[ClusterEvent], None], errors: PluginErrors
    ) -> None:
        event_handlers = [handler for profile in profiles for handler in profile.event_handlers]
        self._event_handlers = [
            each for each in event_handlers if type(each).next_time_event is not EventHandler.next_time_event
        ]
        self._clock = clock
        self._notify = notify
        self._errors = errors

    def announce(self) -> None:
        """Report what is due by now."""
        for handler in self._event_handlers:
            point = "next_time_event"
            try:
                moment = handler.next_time_event()
                if moment is not None and moment <= (now := self._clock.now()).timestamp():
                    point = "time_events"
                    for event in handler.time_events(now):
                        self._notify(event)
            except Exception as error:
                self._failed(handler, point, error)

    def next_deadline(self) -> float | None:
        """The next time in monotonic seconds; None when nothing is expected."""
        moments = []
        for handler in self._event_handlers:
            try:
                if (moment := handler.next_time_event()) is not None:
                    moments.append(float(moment))
            except Exception as error:
                self._failed(handler, "next_time_event", error)
        return self._clock.monotonic() + min(moments) - self._clock.now().timestamp() if moments else None

    def _failed(self, handler: EventHandler, point: str, error: Exception) -> None:
        """A plugin may raise anything; the others, and scheduling, continue."""
        name = handler.name if isinstance(handler, Plugin) else type(handler).__name__
        self._errors.of_plugin(name, point, error)


class NextPod:
    """Selects the next pod. The queue serves all profiles, so only the first NextPod plugin of any profile is
    called."""

    def __init__(self, queue: SchedulingQueue, profiles: Iterable[Profile], errors: PluginErrors) -> None:
        self._queue = queue
        self._errors = errors
        self._plugin = next((plugin for profile in profiles for plugin in profile.all(NextPodPlugin)), None)

    def pop(self) -> QueuedPod | None:
        """Take the pod out of the queue; None when there is nothing to try now. A plugin that names a pod that is
        gated, in flight or unknown is called again; if it fails, or names it again, the queue's order is used."""
        if self._plugin is not None:
            last: str | None = None
            while (uid := self._call(self._plugin)) is not None and uid != last:
                entry = self._queue.take(uid)
                if entry is not None:
                    return entry
                last = uid
        return self._queue.pop()

    def gives_up(self, pod: PodInfo) -> None:
        """The pod is removed from the node that it was assumed on: its resources are free for other pods."""
        useless_to: Collection[str] = ()
        if self._plugin is not None:
            try:
                useless_to = self._plugin.not_freed_by(pod)
            except Exception as error:
                self._errors.of_plugin(self._plugin.name, "not_freed_by", error)
        self._queue.on_event(ClusterEvent(EventKind.POD_DELETE, pod), useless_to)

    def _call(self, plugin: NextPodPlugin) -> str | None:
        try:
            uid: object = plugin.next_pod()
        except Exception as error:
            # A plugin may raise anything; pods are tried in the queue's order then.
            self._errors.of_plugin(plugin.name, "next_pod", error)
            return None
        if uid is None or isinstance(uid, str):
            return uid
        invalid = PluginError(f"it returned {uid!r}; expected is the uid of a pod, or None")
        self._errors.of_plugin(plugin.name, "next_pod", invalid)
        return None


class DecisionLog:
    """The last attempts of the pods that were tried last; a new pod evicts the one that was tried longest ago."""

    def __init__(self, pods: int = 2048, attempts: int = 5) -> None:
        self._pods = pods
        self._attempts = attempts
        self._by_pod: OrderedDict[str, list[Attempt]] = OrderedDict()

    def add(self, key: str, attempt: Attempt) -> None:
        """Log an attempt of the pod ``namespace/name``."""
        attempts = self._by_pod.get(key)
        if attempts is None:
            self._by_pod[key] = [attempt]
            if len(self._by_pod) > self._pods:
                self._by_pod.popitem(last=False)
            return
        self._by_pod.move_to_end(key)
        attempts.append(attempt)
        del attempts[: -self._attempts]

    def attempts(self, key: str) -> Sequence[Attempt]:
        """The logged attempts of the pod, oldest first."""
        return tuple(self._by_pod.get(key, ()))

    def latest(self) -> Iterator[tuple[str, Attempt]]:
        """Pods (``namespace/name``) with their last attempt, the one that was tried last first."""
        return ((key, attempts[-1]) for key, attempts in reversed(self._by_pod.items()))


logger = logging.getLogger(__name__)

_EACH_DECISION: Final = verbosity(5)
_SLICE_SECONDS: Final = 0.004
_LONGEST_PAUSE: Final = 30.0
_AFTER_ERROR: Final = 1.0
"""Seconds to wait after an unexpected error, which may recur at once."""


@dataclass(eq=False, slots=True)
class SchedulingLoop:
    """``run`` schedules until cancelled. ``engines`` by scheduler name; ``work`` is set when there may be something to
    do."""

    engines: Mapping[str, Engine]
    queue: SchedulingQueue
    next_pod: NextPod
    decisions: DecisionLog
    event_handlers: EventHandlers
    binder: Binder
    failed: FailedAttempts
    reporter: FailureReporter
    monitor: SchedulerMonitor
    events: Events
    debug: DebugOutput
    metrics: SchedulerMetrics
    view: ClusterView
    errors: PluginErrors
    clock: Clock
    limit: AbstractContextManager[object]
    work: asyncio.Event
    time_events: TimeEvents = field(init=False)

    def __post_init__(self) -> None:
        profiles = [engine.profile for engine in self.engines.values()]
        self.time_events = TimeEvents(profiles, self.clock, self.queue.on_event, self.errors)
        self.view.waiting.on_decided = self.work.set
        self.binder.finished = self._finished

    async def run(self) -> None:
        while True:
            self.work.clear()
            try:
                if self._slice():
                    await asyncio.sleep(0)
                else:
                    await self._pause()
            except Exception as error:
                # Whatever the error is: pending pods must not wait for ever.
                self.errors.of_ours("taking the next pod", error)
                await self.clock.sleep(_AFTER_ERROR)

    def _finished(self, binding: Binding, outcome: Outcome) -> None:
        """A binding has ended; called once for each."""
        try:
            if outcome.result is Result.BOUND:
                self._bound(binding)
            else:
                self.failed.unreserved(binding, outcome)
        except Exception as error:
            self.failed.unexpected(binding.entry, error)
        if self.binder.has_capacity:
            self.work.set()

    def _slice(self) -> bool:
        """Decide about pods until the time slice is over; returns whether there are more."""
        monotonic = self.clock.monotonic
        end = monotonic() + _SLICE_SECONDS
        if not self.view.waiting.is_empty:
            self.view.waiting.expire(monotonic())
        self.time_events.announce()
        while self._step():
            if monotonic() >= end:
                return True
        return False

    def _step(self) -> bool:
        """Do one step: notifying decided waiting pods comes before new attempts."""
        if self.event_handlers.deferred:
            self.event_handlers.run_deferred()
        if self.view.waiting.decided:
            self.view.waiting.notify_decided()
            return True
        entry = self.next_pod.pop() if self.binder.has_capacity else None
        if entry is None:
            return False
        try:
            self._decide(entry)
        except Exception as error:
            self.failed.unexpected(entry, error)
        return True

    async def _pause(self) -> None:
        waiting = self.view.waiting
        deadlines = [self.queue.next_deadline() if self.binder.has_capacity else None]
        deadlines += [waiting.next_deadline() if not waiting.is_empty else None, self.time_events.next_deadline()]
        now, seconds = self.clock.monotonic(), _LONGEST_PAUSE
        for deadline in deadlines:
            if deadline is not None:
                seconds = min(max(deadline - now, 0.001), seconds)
        try:
            await within(self.clock, seconds, self.work.wait())
        except TimeoutError:
            return

    def _decide(self, entry: QueuedPod) -> None:
        pod, started, now = entry.pod, self.clock.monotonic(), self.clock.now()
        engine, debug = self.engines[pod.pod.spec.scheduler_name], self.debug.settings
        waits: Mapping[str, float] | Rejection = {}
        try:
            with self.limit:
                result = engine.decide(pod, now)
                self.metrics.algorithm(self.clock.monotonic() - started)
                if debug.scores > 0 or debug.filters or debug.diagnosis:
                    self.debug.decided(pod, engine.profile, result)
                if isinstance(result, Placement):
                    waits = engine.assume(result) or engine.permit(result)
        except PluginError as error:
            self.errors.of_pod(pod.key, error)
            self.failed.failed(entry, started, "SchedulerError", str(error))
            return
        if isinstance(result, Rejection):
            self.failed.rejected(entry, started, result)
            return
        if isinstance(waits, Rejection):
            self.failed.rejected(entry, started, waits)
            return
        self.decisions.add(pod.key, Attempt(now, entry.attempts, placement=result))
        binding = Binding(entry, result, engine, started, pod_binding(result.pod.pod, result.node.name))
        self.binder.begin(binding, waits)

    def _bound(self, binding: Binding) -> None:
        entry, placement = binding.entry, binding.placement
        pod = placement.pod
        binding.engine.post_bind(placement)
        if self.queue.remove(pod.uid) is not None:
            # The watch has not shown it yet. When it does, that is no news any more, so unschedulable pods are notified
            # now.
            self.queue.on_event(ClusterEvent(EventKind.POD_ADD, None, pod))
        self.reporter.drop(pod.uid)
        self.monitor.bound(entry, placement, binding.started)
        note = f"Successfully assigned {pod.key} to {placement.node.name}"
        if binding.on_bound is not None:
            binding.on_bound()
        elif pod.uid not in self.view.pseudo_pods:
            self.events.pod_event(pod.pod, "Normal", "Scheduled", "Binding", note)
        logger.log(_EACH_DECISION, "%s", note)
