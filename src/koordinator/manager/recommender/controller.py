"""The controller ``recommender``: collects samples of usage in every pass, and writes what containers should request.

One pass serves all Recommendations, since they share the samples: targets and their pods, samples, kills for memory,
statuses, resizes, checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api.kinds import RECOMMENDATIONS
from koordinator.api.recommendation import POLICY, Recommendation
from koordinator.base.clock import SteadyTime
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import PatchType
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.recommender.checkpoints import Checkpoints
from koordinator.manager.recommender.history import HistoryLoader
from koordinator.manager.recommender.observed_pods import observed_pods, pods_in
from koordinator.manager.recommender.out_of_memory import OutOfMemoryWatch
from koordinator.manager.recommender.resizer import Resizer
from koordinator.manager.recommender.samples import MetricsApi, NodeMetricReports, Readings, Samples
from koordinator.manager.recommender.status import decide_writes
from koordinator.manager.recommender.targets import Problem, TargetResolver
from koordinator.manager.recommender.tracked import Tracked, hash_of_target

logger = logging.getLogger(__name__)

_ALL: Final = "all"
"""The only key of the reconciler."""
_DEADLINE: Final = 600.0
_SHORTEST_PAUSE: Final = 5.0
"""Seconds between two passes, however many Recommendations change."""
_CLOCK_SKEW: Final = timedelta(minutes=1)
"""Samples from further in the future are dropped: they would take its weight from all that was learned before."""
_COLLECTED_EVERY: Final = 3600.0


class RecommenderController:
    """The models belong to one term of leadership, and begin with the checkpoints of the last one."""

    name = "recommender"

    def __init__(self, context: ControllerContext) -> None:
        options, namespace = context.options.recommender, context.options.namespace
        self._options = options
        self._client = context.client
        self._clock = context.clock
        self._time = SteadyTime(context.clock)
        self._recommendations = context.informers.informer(RECOMMENDATIONS, namespace=namespace, absent_is_empty=True)
        self._pods = observed_pods(context.informers, namespace)
        self._samples = Samples(
            options.source,
            (
                MetricsApi(context.client),
                NodeMetricReports(context.informers, context.clock, context.reconcilers.yielding),
            ),
        )
        self._targets = TargetResolver(context.client, context.clock)
        self._out_of_memory = OutOfMemoryWatch(context.client, self._pods, namespace, context.clock)
        self._checkpoints = Checkpoints(context.client, options, namespace, context.clock, context.metrics)
        self._history = HistoryLoader(options, context.clock, context.reconcilers, self._request_pass)
        self._resizer = Resizer(context)
        self._yielding = context.reconcilers.yielding
        self._metrics = _Metrics(context)
        self._tracked: dict[str, Tracked] = {}
        """By the UID of the Recommendation."""
        self._passed_at: float | None = None
        self._collected_at: float | None = None
        self._reconciler = context.reconcilers.make(self.name, self._reconcile, lambda: [_ALL], deadline=_DEADLINE)
        self._recommendations.add_handlers(
            name=self.name, on_add=lambda _, initial: self._request_pass(), on_update=self._changed
        )

    async def run(self) -> None:
        """Work until cancelled; may be called again when this replica leads once more."""
        self._checkpoints.begin()
        # What was found while another replica led is in its checkpoints.
        self._out_of_memory.take()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._out_of_memory.watch_events(), name="recommender evictions")
                tasks.create_task(self._history.run(), name="recommender history")
                await self._reconciler.run()
        finally:
            self._tracked.clear()
            self._passed_at = self._collected_at = None

    def find(self, namespace: str, name: str) -> Tracked | None:
        """What is known of a Recommendation; None if it does not exist or another replica leads."""
        return next((each for each in self._tracked.values() if each.key == f"{namespace}/{name}"), None)

    def _request_pass(self) -> None:
        self._reconciler.add(_ALL)

    def _changed(self, old: Recommendation, new: Recommendation) -> None:
        before, now = old.metadata, new.metadata
        if before.generation != now.generation or before.annotations.get(POLICY) != now.annotations.get(POLICY):
            self._request_pass()

    async def _reconcile(self, _: str) -> float:
        """One pass. Returns the seconds until the next one."""
        now = self._clock.monotonic()
        if self._passed_at is not None and now - self._passed_at < _SHORTEST_PAUSE:
            return _SHORTEST_PAUSE - (now - self._passed_at)
        self._passed_at = now
        await self._checkpoints.load()
        with self._metrics.step("targets"):
            await self._resolve()
        with self._metrics.step("samples"):
            readings = await self._collect()
        with self._metrics.step("out_of_memory"):
            self._feed_out_of_memory()
        with self._metrics.step("statuses"):
            await self._write_statuses()
        with self._metrics.step("resizes"):
            await self._resizer.act(list(self._tracked.values()), readings)
        with self._metrics.step("checkpoints"):
            await self._checkpoints.write(list(self._tracked.values()))
        self._forget()
        return self._options.interval.total_seconds()

    async def _resolve(self) -> None:
        """Find the pods of every Recommendation."""
        existing = {each.metadata.uid: each for each in self._recommendations.list()}
        self._tracked = {uid: each for uid, each in self._tracked.items() if uid in existing}
        self._targets.begin_pass(existing)
        for uid, found in existing.items():
            await self._yielding.checkpoint()
            tracked = self._tracked.get(uid)
            if tracked is None:
                tracked = self._tracked[uid] = self._begin(found)
            tracked.update(found)
            target = await self._targets.resolve(found)
            if isinstance(target, Problem):
                tracked.problem, tracked.target, tracked.pods = target, None, ()
                continue
            pods = pods_in(self._pods, found.metadata.namespace)
            tracked.problem, tracked.target = None, target
            tracked.pods = await self._targets.matching(target, pods)
            if not tracked.pods:
                self._targets.has_no_pods(found)
            self._history.request(tracked)

    def _begin(self, found: Recommendation) -> Tracked:
        tracked = Tracked(found, hash_of_target(found), self._time)
        if not self._checkpoints.restore(tracked):
            self._history.want(tracked)
        return tracked

    async def _collect(self) -> Readings:
        """Feed the usage of all pods to the models, and return it."""
        with_pods = [each for each in self._tracked.values() if each.pods]
        namespaces = sorted({each.recommendation.metadata.namespace for each in with_pods})
        if not namespaces:
            return {}
        source, readings = await self._samples.read(namespaces)
        latest = self._clock.now() + _CLOCK_SKEW
        for tracked in with_pods:
            await self._yielding.checkpoint()
            self._feed(tracked, source, readings, latest)
        return readings

    def _feed(self, tracked: Tracked, source: str, readings: Readings, latest: datetime) -> None:
        for pod in tracked.pods:
            reading = readings.get((pod.metadata.namespace, pod.metadata.name))
            created = pod.metadata.creation_timestamp
            if reading is None or (created is not None and reading.at < created <= latest):
                # There is none, or it is of an earlier pod of the same name. A pod that is yet to be created, because
                # a clock was ahead when it was, has readings like any other.
                continue
            if reading.at > latest:
                self._metrics.samples.labels(source, "all", "in_future").inc()
                continue
            for resource, fed in zip(("cpu", "memory"), tracked.feed(pod, reading, self._options.model), strict=True):
                self._metrics.samples.labels(source, resource, "added").inc(fed.added)
                self._metrics.samples.labels(source, resource, "dropped").inc(fed.dropped)

    def _feed_out_of_memory(self) -> None:
        found = self._out_of_memory.take()
        if not found:
            return
        by_pod: dict[str, list[Tracked]] = {}
        for tracked in self._tracked.values():
            for pod in tracked.pods:
                by_pod.setdefault(pod.metadata.uid, []).append(tracked)
        now = self._clock.now()
        for each in found:
            # A node whose clock is ahead dates its kills so, but they have happened.
            each = each._replace(at=min(each.at, now))
            for tracked in by_pod.get(each.uid, ()):
                if tracked.feed_out_of_memory(each, self._options.model):
                    self._metrics.out_of_memory.inc()

    async def _write_statuses(self) -> None:
        for tracked in self._tracked.values():
            await self._yielding.checkpoint()
            found = tracked.recommendation
            if found.metadata.deletion_timestamp is not None:
                continue
            writes = decide_writes(tracked, self._options.estimate, self._clock.now())
            if writes.status is not None:
                await self._patch(found, writes.status, "status")
            if writes.metadata is not None:
                await self._patch(found, writes.metadata)

    async def _patch(self, found: Recommendation, patch: Mapping[str, Any], subresource: str = "") -> None:
        metadata = found.metadata
        try:
            await self._client.patch(
                RECOMMENDATIONS, metadata.name, patch, PatchType.MERGE, metadata.namespace, subresource=subresource
            )
        except KubeError as error:
            # The other Recommendations get theirs; this one is tried again in the next pass.
            if not (isinstance(error, ApiStatusError) and error.is_not_found):
                logger.warning("recommender: Recommendation %s was not written: %s", metadata.key, error)

    def _forget(self) -> None:
        """Forget containers that no longer have samples, once an hour."""
        now = self._clock.monotonic()
        self._metrics.tracked.set(sum(len(each.models) for each in self._tracked.values()))
        if self._collected_at is not None and now - self._collected_at < _COLLECTED_EVERY:
            return
        self._collected_at = now
        for tracked in self._tracked.values():
            tracked.forget(self._options.forgotten_after)


class _Metrics:
    def __init__(self, context: ControllerContext) -> None:
        metrics, prefix = context.metrics, "koord_manager_recommender"
        self._clock = context.clock
        self._durations = metrics.histogram(
            f"{prefix}_loop_duration_seconds", "Seconds that the steps of a pass of the recommender took", ("step",)
        )
        self.samples = metrics.counter(
            f"{prefix}_samples_total",
            "Samples of the usage of containers, by source, resource and result",
            ("source", "resource", "result"),
        )
        self.out_of_memory = metrics.counter(
            f"{prefix}_oom_total", "Containers of Recommendations that were killed or evicted for memory"
        )
        self.tracked = metrics.gauge(
            f"{prefix}_tracked_containers", "Containers of Recommendations whose usage is remembered"
        )

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = self._clock.monotonic()
        try:
            yield
        finally:
            self._durations.labels(name).observe(self._clock.monotonic() - started)
