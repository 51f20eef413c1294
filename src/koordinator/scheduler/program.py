"""The scheduler put together: informers feed the state and the queue, the loop decides, the binder binds.

Everything is built from the API alone. No decision is made before the initial lists are complete, so that a restart or
a change of leader starts from the API's state and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import Any

from koordinator.api.pod import Pod
from koordinator.base.clock import Clock
from koordinator.base.deadline import unless, within
from koordinator.base.loops import STEP_SECONDS
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.request_slots import OverdueRequests
from koordinator.model.transformers import pod_steps
from koordinator.scheduler.binding.binder import DEADLINE, Binder
from koordinator.scheduler.binding.cluster_writer import ApiWriter
from koordinator.scheduler.binding.evictions import Evictions
from koordinator.scheduler.binding.pre_bind import PreBindStage
from koordinator.scheduler.cycle.condition_refresh import ConditionRefresh
from koordinator.scheduler.cycle.decision_limit import DecisionLimit, packages_of
from koordinator.scheduler.cycle.failed_attempts import FailedAttempts
from koordinator.scheduler.cycle.failure_report import Failure, FailureReporter
from koordinator.scheduler.cycle.loop import DecisionLog, NextPod, SchedulingLoop
from koordinator.scheduler.cycle.measurement import MonitorOptions, PluginTimes, SchedulerMonitor
from koordinator.scheduler.cycle.plugin_services import PluginServices, make_controllers, run_controller
from koordinator.scheduler.debug_output import DebugOutput, DebugSettings
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.engine import Engine, gate_of
from koordinator.scheduler.engine.evaluation_check import EvaluationCheck
from koordinator.scheduler.engine.event_listeners import OnError
from koordinator.scheduler.engine.framework import PluginError, is_built_in
from koordinator.scheduler.engine.framework_hooks import Controller, NextPodPlugin
from koordinator.scheduler.engine.handle import Events
from koordinator.scheduler.engine.pod_info import PodFacts, PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.resync import Resync
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.sources import Sources
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.plugin_errors import PluginErrors
from koordinator.scheduler.queue.queued_pod import Pool, checked_sort_key
from koordinator.scheduler.queue.scheduling_queue import QueueOptions, SchedulingQueue
from koordinator.scheduler.watch.event_handlers import EventHandlers, add_informers
from koordinator.scheduler.watch.queueing_hints import QueueingHints
from koordinator.scheduler.watch.resynchronisation import Resynchronisation
from koordinator.scheduler.watch.unreadable_pods import UnreadablePodHandlers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Settings that are not part of the profiles. Durations are in seconds."""

    queue: QueueOptions = field(default_factory=QueueOptions)
    bind_concurrency: int = 32
    drain_seconds: float = 5.0
    controller_plugins: Sequence[str] = ("*",)
    """The plugins whose controllers run, as ``name_list.is_enabled`` reads the list."""
    foreign_nominations: bool = False
    """Count pods that other schedulers have nominated to nodes, if their priority is higher (gate
    CrossSchedulerNomination)."""
    decision_seconds: float = 0.0
    """The time limit of a decision; 0 for no limit. Needs the main thread and its SIGALRM."""
    monitor: MonitorOptions = field(default_factory=MonitorOptions)
    debug: DebugSettings = field(default_factory=DebugSettings)
    batches: bool = True
    """Evaluate dirty nodes for many classes of pods at once; for debugging this may be switched off."""
    check_evaluations: bool = False
    """Compare the evaluation behind every decision with a fresh one, and log differences."""
    diagnosis_queue: int = 1000
    """How many diagnoses may wait to be logged; further ones are dropped."""
    decisions_kept: int = 2048
    """The number of pods whose last attempts are kept."""


class Scheduler:
    """One scheduler process without its flags, leader election and HTTP server.

    ``build_profiles`` makes the plugins for the view that it is given; ``make_pod`` computes a pod's PodInfo for that
    view.
    """

    def __init__(
        self,
        client: Client,
        events: Events,
        build_profiles: Callable[[ClusterView], Sequence[Profile]],
        make_pod: Callable[[Pod], PodInfo],
        view: ClusterView,
        metrics: SchedulerMetrics,
        *,
        clock: Clock,
        random: Random,
        options: SchedulerOptions | None = None,
    ) -> None:
        self._options = options or SchedulerOptions()
        self._is_scheduling = False
        """False while the instance waits to lead; then nothing is written."""
        self._work = asyncio.Event()
        """Set when there may be something to decide about."""
        self._clock = clock
        self._client = client
        self._random = random
        self._loops = metrics.loops(clock)
        errors = PluginErrors(clock.monotonic, metrics.plugin_error, metrics.plugin_resync)
        self.state = ClusterState(view, errors.of_event_handler)
        self.decisions = DecisionLog(self._options.decisions_kept)
        profiles = build_profiles(view)
        for profile in profiles:
            self.state.add_event_handlers(profile.event_handlers)
        self.engines: Mapping[str, Engine] = {
            profile.scheduler_name: Engine(profile, self.state, random, batches=self._options.batches)
            for profile in profiles
        }
        for name, engine in self.engines.items():
            times = PluginTimes(name, metrics, clock.monotonic)
            engine.measure, engine.times, engine.on_error = times.refresh, times, errors.of_plugin
            if self._options.check_evaluations:
                engine.refresh = EvaluationCheck(engine.profile, view, errors.of_cache).refresh
                engine.measure = EvaluationCheck(engine.profile, view, errors.of_cache, times.refresh).refresh
        self._errors = errors
        resync = Resync(self.state)
        self._resynchronisation = Resynchronisation(resync, errors, self._retry_unschedulable, clock, random)
        self.state.event_handlers.on_stale = self._resynchronisation.wake
        hints = QueueingHints(self.state, lambda name: self.engines[name].profile, errors)
        self.queue = SchedulingQueue(
            _sort_key(profiles, errors.of_plugin),
            gate_of(self.engines),
            clock.monotonic,
            self._options.queue,
            hints.queueing_hint,
            hints.nominated_to,
            _keeps_back_off(profiles),
            self._gate_failed,
        )
        limit: AbstractContextManager[object] = nullcontext()
        if self._options.decision_seconds:
            limit = decision_limit = DecisionLimit(self._options.decision_seconds, packages_of(profiles))
            for engine in self.engines.values():
                engine.check_time = decision_limit.check
        overdue = OverdueRequests()
        self._writer = ApiWriter(client, clock, random, overdue)
        self._reporter = FailureReporter(
            client, events, self._loops.loop("failure-reporter"), clock, random, overdue=overdue
        )
        alike = {profile.scheduler_name for profile in profiles if profile.treats_equals_alike}
        self.event_handlers = EventHandlers(
            self.state,
            self.queue,
            PodFacts(make_pod, alike.__contains__),
            self.engines.__contains__,
            self._work.set,
            clock.now,
            self._reporter,
            self._writer.notify,
            foreign_nominations=self._options.foreign_nominations,
        )
        self._pre_bind_stage = PreBindStage(self._writer, clock)
        self._binder = Binder(
            client,
            self.state,
            self._writer,
            events,
            view.waiting,
            self._pre_bind_stage,
            self._work.set,
            self._loops.loop("binder", DEADLINE).timed,
            metrics.waited,
            clock=clock,
            random=random,
            overdue=overdue,
            concurrency=self._options.bind_concurrency,
        )
        self.debug = DebugOutput(view, self._options.debug, clock.now, queue_size=self._options.diagnosis_queue)
        self.monitor = SchedulerMonitor(self.queue, metrics, clock, self._options.monitor)
        evicting = self._loops.loop("evictions")
        self._evictions = Evictions(client, events, view, evicting, clock, random, overdue=overdue)
        next_pod = NextPod(self.queue, profiles, errors)
        failed = FailedAttempts(
            self.engines,
            self.queue,
            view,
            self.decisions.add,
            self._evictions,
            self._reporter,
            self.monitor,
            metrics,
            errors,
            clock,
            next_pod.gives_up,
            self._work.set,
        )
        self._loop = SchedulingLoop(
            self.engines,
            self.queue,
            next_pod,
            self.decisions,
            self.event_handlers,
            self._binder,
            failed,
            self._reporter,
            self.monitor,
            events,
            self.debug,
            metrics,
            view,
            errors,
            clock,
            limit,
            self._work,
        )
        services = PluginServices(
            self.queue, self.event_handlers, events, self._work.set, clock.monotonic, errors.of_score
        )
        for engine in self.engines.values():
            engine.handle.connect(services)
        self._condition_refresh = ConditionRefresh(
            self.engines, self.queue, self._reporter, view.pseudo_pods, clock, errors.of_plugin
        )
        self._metrics = metrics
        metrics.observe_sizes(self.queue.size, self._cache_sizes)
        metrics.observe_unschedulable(self.queue.pods)
        metrics.observe_incoming(self.queue.incoming)
        metrics.observe_plugins(profiles)
        self.informers = InformerSet(
            client, clock=clock, random=random, metrics=metrics.registered, write_through=False
        )
        plugins = [plugin for profile in profiles for plugin in profile.parts]
        unreadable_pods = UnreadablePodHandlers(self.state, self.engines[profiles[0].scheduler_name].handle)
        add_informers(
            self.informers, self.event_handlers, unreadable_pods, plugins, metrics.malformed, pod_steps(view.gates)
        )

    @property
    def is_binding(self) -> bool:
        """Whether any binding is under way at the API server."""
        return self._binder.unfinished > 0

    def check_bindings(self) -> str:
        """For health checks: a description of the bindings that have exceeded their deadline; empty when there are
        none."""
        return self._binder.check()

    @property
    def in_hand(self) -> int:
        """How many pods may be decided about now, or are being bound; not those that wait at a Permit plugin."""
        ready, begun = self.queue.size(Pool.ACTIVE), self.queue.size(Pool.IN_FLIGHT)
        return ready + begun - len(self.state.view.waiting)

    @property
    def sources(self) -> Sources:
        """The state that explanations are made from."""
        profiles = {name: engine.profile for name, engine in self.engines.items()}
        clock = self._clock
        return Sources(self.decisions, self.queue, self.state.view, profiles, clock.now, clock.monotonic)

    def pods(self) -> Iterable[Pod]:
        """Pods on nodes, and pods of these profiles that wait for a node."""
        on_nodes = {uid: info.pod for pods in self.state.view.pods_on.values() for uid, info in pods.items()}
        return {**on_nodes, **{entry.pod.uid: entry.pod.pod for entry in self.queue.pods()}}.values()

    @property
    def synced(self) -> bool:
        """Whether the state shows the whole cluster."""
        return not self.informers.not_synced

    async def watch(self) -> None:
        """Keep the state and the queue current until cancelled; runs on leaders and on instances that wait to lead
        alike."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.informers.run(), name="informers")
            self._start(tasks, "resynchronisation", self._resynchronisation.run)

    async def schedule(self, stop: asyncio.Event) -> None:
        """Wait for the initial lists, then schedule until ``stop``; returns when no binding is under way."""
        if not await unless(stop, self.informers.wait_synced()):
            return
        self._is_scheduling = True
        logger.info("in sync: %s", ", ".join(f"{count} {name}" for name, count in self._cache_sizes().items()))
        async with asyncio.TaskGroup() as tasks:
            binder = tasks.create_task(self._binder.run(), name="binder")
            beside = [
                tasks.create_task(self._reporter.run(), name="failure-reporter"),
                tasks.create_task(self._evictions.run(), name="evictions"),
                tasks.create_task(self._writer.run(), name="plugin-requests"),
                self._start(tasks, "preparation", self._pre_bind_stage.run),
                self._start(tasks, "scheduler-monitor", self.monitor.run),
                self._start(tasks, "condition-refresh", self._condition_refresh.run),
                self._start(tasks, "diagnoses", self.debug.run),
            ]
            beside += [
                self._start(
                    tasks,
                    f"{plugin}/{controller.name}",
                    partial(run_controller, plugin, controller, self._clock, self._random, self._errors.of_plugin),
                )
                for plugin, controller in self._controllers()
            ]
            loop = self._start(tasks, "scheduling-loop", self._loop.run, self._options.decision_seconds)
            await stop.wait()
            loop.cancel()
            with suppress(TimeoutError):
                await within(self._clock, self._options.drain_seconds, self._binder.idle())
            if self._binder.unfinished:
                logger.warning("%d bindings were still under way when the time to stop was up", self._binder.unfinished)
            binder.cancel()
            for task in beside:
                task.cancel()

    def _start(
        self,
        tasks: asyncio.TaskGroup,
        name: str,
        body: Callable[[], Coroutine[Any, Any, None]],
        deadline: float = STEP_SECONDS,
    ) -> asyncio.Task[None]:
        """Start a loop whose heartbeat is its progress, and that blocks the event loop for ``deadline`` seconds at
        most."""
        return tasks.create_task(self._loops.loop(name, deadline or inf).watch(body), name=name)

    def _retry_unschedulable(self) -> None:
        self.queue.activate_unschedulable()
        self._work.set()

    def _controllers(self) -> list[tuple[str, Controller]]:
        profiles = [engine.profile for engine in self.engines.values()]
        selection = self._options.controller_plugins
        return make_controllers(profiles, selection, self._writer, self._errors.of_plugin)

    def _gate_failed(self, pod: PodInfo, error: PluginError) -> None:
        self._errors.of_pod(pod.key, error)
        if self._is_scheduling:
            self._reporter.report(Failure(pod.pod, "SchedulerError", str(error)))

    def _cache_sizes(self) -> dict[str, int]:
        return {
            "nodes": len(self.state.view.columns.row_of),
            "pods": self.state.pod_count,
            "assumed_pods": self.state.assumed_count,
        }


def _keeps_back_off(profiles: Sequence[Profile]) -> Callable[[PodInfo], bool]:
    plugins = [plugin for profile in profiles for plugin in profile.all(NextPodPlugin)]
    return lambda pod: any(plugin.keeps_back_off(pod) for plugin in plugins)


def _sort_key(profiles: Sequence[Profile], on_error: OnError) -> Callable[[PodInfo, float], tuple[Any, ...]]:
    """The sort key of the one queue that all profiles share."""
    for profile in profiles:
        plugin = profile.queue_sort
        if plugin is not None:
            return plugin.sort_key if is_built_in(plugin) else checked_sort_key(plugin, on_error)
    return lambda pod, queued_at: (-pod.priority, queued_at)
