"""Runs the pods that are bound to simulated nodes, through the API alone: what a kubelet and its runtime would do.

Decisions are in ``pod_lifecycle``, what is written in ``pod_status``. All that is remembered can be had from the API
again, so that a restart adopts running pods and an outage of the API server only delays what was due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod, is_finished
from koordinator.base.clock import Clock
from koordinator.base.durations import DurationError, parse_duration
from koordinator.cluster.nodes import pod_status
from koordinator.cluster.nodes.node_objects import SimulatedNode
from koordinator.cluster.nodes.pod_addresses import PodAddresses
from koordinator.cluster.nodes.pod_commands import Ending, ending_by_command
from koordinator.cluster.nodes.pod_resize import Allocations
from koordinator.cluster.nodes.population import Population
from koordinator.cluster.nodes.rotation import SimulatedTime
from koordinator.cluster.nodes.scenario import DurationRange, Scenario
from koordinator.cluster.nodes.simulated_pod import SIMULATED_PODS, SimulatedPod
from koordinator.cluster.nodes.usage import (
    BEHAVIOUR_ANNOTATION,
    BEHAVIOURS,
    Purpose,
    Tier,
    identity,
    one_between,
    profile_of,
)
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.requeue_delays import ExponentialFailureLimiter
from koordinator.kube.workqueue import WorkQueue, run_workers

# What a simulated node does next with a pod: a function of the pod as the API has it and of a few remembered times.


class Step(Enum):
    """The next thing that happens to a pod."""

    START = "start"
    """Its containers start: Pending becomes Running."""
    REPORT = "report"
    """Somebody has written that it is not ready, because nothing was heard of the node: it is."""
    CATCH_UP = "catch up"
    """Its spec has changed: its containers are resized, ephemeral ones join it."""
    SUCCEED = "succeed"
    """Its work is done."""
    FAIL = "fail"
    """It ends with an exit code other than 0."""
    EXPIRE = "expire"
    """It ran longer than spec.activeDeadlineSeconds."""
    STOP = "stop"
    """It is being deleted and its containers have ended."""
    REMOVE = "remove"
    """Nothing of it is left: confirm the deletion."""


@dataclass(slots=True)
class PodTimes:
    """When things happened to a pod, in simulated seconds; from memory where we did them, else from the API."""

    seen: float
    started: float | None = None
    starting: float | None = None
    """Set while the start is being written, since the API may show it before the response comes."""
    deleting: float | None = None
    has_room: bool = False
    """Another pod has made room on the node, for which this one waits to be resized."""


@dataclass(frozen=True, slots=True)
class PodDelays:
    """How long things take, in simulated seconds, and how it ends. ``run`` is None for pods that run until they are
    deleted."""

    start: float
    stop: float
    run: float | None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A step and the moment (simulated seconds) at which it is due."""

    step: Step
    at: float


def next_step(pod: Pod, times: PodTimes, delays: PodDelays) -> Plan | None:
    """The next step of a bound pod, None when there is nothing to do until the pod changes."""
    if pod.metadata.deletion_timestamp is not None:
        return _deletion(pod, times, delays)
    if is_finished(pod):
        return None
    if times.started is None:
        return Plan(Step.START, times.seen + delays.start)
    if pod_status.is_marked_not_ready(pod):
        return Plan(Step.REPORT, times.started)
    if times.has_room or not pod_status.has_seen_spec(pod):
        return Plan(Step.CATCH_UP, times.started)
    return _end(pod, times.started, delays)


def _deletion(pod: Pod, times: PodTimes, delays: PodDelays) -> Plan | None:
    grace = pod.metadata.deletion_grace_period_seconds or 0
    since = times.seen if times.deleting is None else times.deleting
    if is_finished(pod):
        # With a grace of 0 the deletion is confirmed already; finalizers keep the object.
        return None if grace == 0 and pod.metadata.finalizers else Plan(Step.REMOVE, since)
    if times.started is None:
        return Plan(Step.STOP, since)
    return Plan(Step.STOP, since + min(float(grace), delays.stop))


def _end(pod: Pod, started: float, delays: PodDelays) -> Plan | None:
    deadline = pod.spec.active_deadline_seconds
    ends_itself = delays.run is not None and pod.spec.restart_policy in ("Never", "OnFailure")
    if ends_itself and delays.run is not None and (deadline is None or delays.run <= deadline):
        return Plan(Step.FAIL if delays.exit_code else Step.SUCCEED, started + delays.run)
    return None if deadline is None else Plan(Step.EXPIRE, started + deadline)


logger = logging.getLogger(__name__)

RUN_TIME_ANNOTATION: Final = "simulation.koordinator.sh/run-time"
"""On a pod with restartPolicy Never or OnFailure: after how long (a Go duration) it succeeds."""


_ROUNDING: Final = 0.001
"""Seconds since the epoch, as floats, are not exact."""


_STOPPED_PAUSE: Final = 2.0
"""Seconds until a step on a stopped node is tried again."""


class PodRuntime:
    """Call ``observe`` and ``forget`` for pods; ``run`` does the rest."""

    def __init__(
        self,
        client: Client,
        scenario: Scenario,
        population: Population,
        time: SimulatedTime,
        find_pod: Callable[[str], SimulatedPod | None],
        find_node: Callable[[str], SimulatedNode | None],
        is_stopped: Callable[[str], bool],
        pods_of: Callable[[str], Sequence[Pod]],
        *,
        clock: Clock,
        concurrency: int,
    ) -> None:
        """``find_pod`` gives a pod by ``namespace/name`` as the API has it, ``find_node`` a node that is simulated,
        ``pods_of`` the pods of a node. No step is taken on a node that ``is_stopped``."""
        self._client = client
        self._scenario = scenario
        self._population = population
        self._time = time
        self._find_pod = find_pod
        self._find_node = find_node
        self._is_stopped = is_stopped
        self._pods_of = pods_of
        self._allocations = Allocations()
        self._deferred: dict[str, set[str]] = {}
        """Of each node, the pods (``namespace/name``) that wait for room to be resized."""
        self._clock = clock
        self._addresses = PodAddresses()
        self._times: dict[str, PodTimes] = {}
        self._delays: dict[str, PodDelays] = {}
        self._concurrency = concurrency
        self._due: WorkQueue[str] = WorkQueue(time.clock)
        """Pods with a step that is due in simulated time."""
        self._queue: WorkQueue[str] = WorkQueue(clock, ExponentialFailureLimiter(base=0.5, maximum=30.0))
        """Pods whose step is due now; one that fails is tried again in real time."""

    async def run(self) -> None:
        """Do what is due, when it is due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_workers(self._due, self._take_up, workers=1, on_error=_say_failure), name="due pods")
            acting = run_workers(self._queue, self._act, workers=self._concurrency, on_error=_say_failure)
            tasks.create_task(acting, name="steps of pods")

    async def _take_up(self, key: str) -> None:
        self._queue.add(key)

    async def idle(self) -> None:
        """Wait until all that is due has been done."""
        await self._queue.idle()

    def observe(self, pod: SimulatedPod) -> None:
        """A pod that is bound to a simulated node was added or has changed."""
        uid, now = pod.metadata.uid, self._time.now()
        times = self._times.get(uid)
        if times is None:
            times = self._times[uid] = PodTimes(seen=now)
            self._delays[uid] = self._delays_of(pod)
        if pod.metadata.deletion_timestamp is not None and times.deleting is None:
            times.deleting = now
        if pod.status.phase == "Running" and times.started is None:
            times.started = times.starting
            if times.started is None:
                times.started = self._time.of(pod.status.start_time) if pod.status.start_time else now
        self._update_population(pod, times)
        self._plan(pod, times)

    def forget(self, pod: Pod) -> None:
        """The pod is gone from the API, or its node is."""
        uid = pod.metadata.uid
        self._times.pop(uid, None)
        self._delays.pop(uid, None)
        self._population.remove_pod(uid)
        self._addresses.release(uid)
        self._allocations.forget(uid)
        self._make_room(pod)

    def _update_population(self, pod: Pod, times: PodTimes) -> None:
        if is_finished(pod):
            self._population.finish_pod(pod.metadata.uid)
            self._addresses.release(pod.metadata.uid)
            self._make_room(pod)
        elif times.started is not None:
            self._addresses.adopt(pod.metadata.uid, pod.status.pod_ip)
            if pod_status.is_resize_deferred(pod):
                self._deferred.setdefault(pod.spec.node_name, set()).add(pod.metadata.key)
            self._population.start_pod(pod.spec.node_name, profile_of(pod), times.started)

    def _make_room(self, pod: Pod) -> None:
        """It needs no room any more, or less."""
        for key in self._deferred.pop(pod.spec.node_name, ()):
            waiting = self._find_pod(key)
            times = self._times.get(waiting.metadata.uid) if waiting is not None else None
            if times is not None:
                times.has_room = True
                self._queue.add(key)

    def _plan(self, pod: Pod, times: PodTimes) -> None:
        plan = next_step(pod, times, self._delays[pod.metadata.uid])
        if plan is not None:
            self._due.add_after(pod.metadata.key, self._time.real(plan.at - self._time.now()))

    async def _act(self, key: str) -> None:
        pod = self._find_pod(key)
        if pod is None or pod.metadata.uid not in self._times:
            return
        if self._is_stopped(pod.spec.node_name):
            self._queue.add_after(key, _STOPPED_PAUSE)
            return
        times = self._times[pod.metadata.uid]
        plan = next_step(pod, times, self._delays[pod.metadata.uid])
        if plan is None:
            return
        if plan.at > self._time.now() + _ROUNDING:
            self._plan(pod, times)
            return
        try:
            await self._take(plan.step, pod, times)
        except ApiStatusError as error:
            # It is gone, or another pod has its name by now: the informer will say so.
            if not (error.is_not_found or error.is_conflict or error.is_invalid):
                raise
            logger.debug("pod %s changed before %s: %s", key, plan.step.value, error)

    async def _take(self, step: Step, pod: SimulatedPod, times: PodTimes) -> None:
        now = self._clock.now()
        match step:
            case Step.START:
                await self._start(pod, times)
            case Step.REPORT:
                await self._patch(pod, pod_status.ready(pod, now))
            case Step.CATCH_UP:
                await self._catch_up(pod, times)
            case Step.SUCCEED:
                await self._patch(pod, pod_status.succeeded(pod, now))
            case Step.FAIL:
                await self._patch(pod, pod_status.failed(pod, now, self._delays[pod.metadata.uid].exit_code))
            case Step.EXPIRE:
                await self._patch(pod, pod_status.expired(pod, now))
            case Step.STOP:
                await self._patch(pod, pod_status.stopped(pod, now))
            case Step.REMOVE:
                name, namespace = pod.metadata.name, pod.metadata.namespace
                await self._client.delete(PODS, name, namespace, uid=pod.metadata.uid, grace_period_seconds=0)

    async def _start(self, pod: SimulatedPod, times: PodTimes) -> None:
        node = self._find_node(pod.spec.node_name)
        if node is None:
            return
        host_network = pod.spec.host_network
        address = node.address if host_network else self._addresses.take(pod.metadata.uid, node.ordinal)
        # Finer than the API's whole seconds, which is what a fast simulation needs.
        times.starting = self._time.now()
        try:
            await self._patch(pod, pod_status.running(pod, address, node.address, self._clock.now()))
        finally:
            times.starting = None

    async def _catch_up(self, pod: SimulatedPod, times: PodTimes) -> None:
        name = pod.spec.node_name
        node = self._find_node(name)
        if node is None:
            return
        times.has_room = False
        waiting = self._deferred.setdefault(name, set())
        waiting.discard(pod.metadata.key)
        pending, makes_room = self._allocations.resize(pod, node, self._pods_of(name))
        if pending is not None and pending.is_deferred:
            # Before it is written: a pod that leaves meanwhile must find this one waiting.
            waiting.add(pod.metadata.key)
        if makes_room:
            self._make_room(pod)
        patch = pod_status.caught_up(pod, pending, self._clock.now())
        try:
            if patch is not None:
                await self._patch(pod, patch)
            else:
                # A write would plan what is next; it may have fallen due meanwhile.
                self._plan(pod, times)
        except KubeError:
            # The retry looks for room again.
            times.has_room = True
            raise

    async def _patch(self, pod: Pod, patch: dict[str, Any]) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        written = await self._client.patch(
            SIMULATED_PODS, name, patch, PatchType.STRATEGIC, namespace, subresource="status"
        )
        if pod.metadata.uid in self._times:
            # Simulated time does not wait until the watch has shown it.
            self.observe(written)

    def _delays_of(self, pod: SimulatedPod) -> PodDelays:
        self._check_behaviour(pod)
        timing = self._scenario.timing
        ending = ending_by_command(pod)
        code = ending.exit_code if ending is not None else 0
        if code and pod.spec.restart_policy == "OnFailure":
            # Restarts of containers are not simulated.
            ending, code = None, 0
        return PodDelays(
            start=self._draw(pod, Purpose.START_LATENCY, timing.pod_start),
            stop=self._draw(pod, Purpose.STOP_LATENCY, timing.pod_stop),
            run=self._run_time(pod, ending),
            exit_code=code,
        )

    def _check_behaviour(self, pod: Pod) -> None:
        text = pod.metadata.annotations.get(BEHAVIOUR_ANNOTATION)
        if text is not None and text not in BEHAVIOURS:
            allowed = ", ".join(BEHAVIOURS)
            logger.warning(
                "pod %s: annotation %s is ignored: %r; allowed are %s",
                *(pod.metadata.key, BEHAVIOUR_ANNOTATION, text, allowed),
            )

    def _run_time(self, pod: Pod, ending: Ending | None) -> float | None:
        text = pod.metadata.annotations.get(RUN_TIME_ANNOTATION)
        if text is not None:
            try:
                return max(0.0, parse_duration(text).total_seconds())
            except DurationError as error:
                logger.warning("pod %s: annotation %s is ignored: %s", pod.metadata.key, RUN_TIME_ANNOTATION, error)
        if ending is not None:
            return ending.seconds
        if profile_of(pod).tier is Tier.LATENCY_SENSITIVE and not _belongs_to_job(pod):
            return None
        return self._draw(pod, Purpose.RUN_TIME, self._scenario.usage.batch.run_time)

    def _draw(self, pod: Pod, purpose: Purpose, bounds: DurationRange) -> float:
        low, high = bounds
        seconds = (low.total_seconds(), high.total_seconds())
        return one_between(self._scenario.seed, identity(pod.metadata.uid), purpose, seconds)


def _say_failure(key: str, error: Exception) -> None:
    unexpected = error if not isinstance(error, KubeError) else None
    logger.warning("pod %s: %s; trying again soon", key, error, exc_info=unexpected)


def _belongs_to_job(pod: Pod) -> bool:
    return any(owner.kind == "Job" for owner in pod.metadata.owner_references)
