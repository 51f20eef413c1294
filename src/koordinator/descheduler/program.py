"""The descheduler put together: informers, profiles, and a cycle every interval while this instance leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from koordinator.api.kinds import NODE_METRICS, NODES, PODS, RECOMMENDATIONS, RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.rebalance_explanation import RebalanceExplanation
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.deadline import unless
from koordinator.base.logs import fields
from koordinator.base.loops import LoopMetrics
from koordinator.base.program import Process
from koordinator.descheduler.configuration.arguments import checked_selector
from koordinator.descheduler.configuration.loading import Configuration, ProfileConfiguration
from koordinator.descheduler.cycle import Cycle, CycleReport, is_ready
from koordinator.descheduler.eviction_pipeline import EvictionLimiter
from koordinator.descheduler.executors import DryRun, Live
from koordinator.descheduler.explanation import explain
from koordinator.descheduler.framework import Evictor, Handle, Plugin, Snapshot
from koordinator.descheduler.profiles import build_profile
from koordinator.descheduler.requests import reservations_by_node
from koordinator.kube.errors import TransportError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.model.recommendations import RecommendationIndex
from koordinator.model.transformers import node_as_seen, pod_as_seen, pod_steps

logger = logging.getLogger(__name__)

NODE_INDEX: Final = "node-name"
_CYCLE_DEADLINE: Final = 600.0
"""Seconds that a cycle may take; thousands of evictions at the rate of the client take minutes."""
_MISSED: Final = 5
_RETRY: Final = BackoffPolicy(initial=0.5, maximum=15.0)


class Descheduler:
    """One descheduler process without its flags, leadership and HTTP surface."""

    def __init__(
        self,
        client: Client,
        events: EventBroadcaster,
        configuration: Configuration,
        process: Process,
        gates: frozenset[str] = frozenset(),
    ) -> None:
        document = configuration.document
        self._clock = process.clock
        self._random = process.random
        self._interval = document.descheduling_interval.total_seconds()
        self._heartbeat = LoopMetrics(process.clock, process.metrics).loop("descheduling-cycles", _CYCLE_DEADLINE)
        self._cycling = False
        self._dry_run = document.dry_run
        self._intentions: frozenset[str] = frozenset()
        """Of the controllers, as of the last cycle of a dry run."""
        self._selector = checked_selector(document.node_selector, "nodeSelector")
        self.informers = InformerSet(client, clock=process.clock, random=process.random)
        self._nodes = self.informers.informer(NODES, transform=node_as_seen)
        as_seen = partial(pod_as_seen, steps=pod_steps(gates))
        self._pods = self.informers.informer(PODS, transform=as_seen, indexes={NODE_INDEX: _node_name})
        self._metrics = self.informers.informer(NODE_METRICS, absent_is_empty=True)
        self._reservations = self.informers.informer(RESERVATIONS, absent_is_empty=True)

        def make_handle(profile: ProfileConfiguration, evictor: Evictor) -> Handle:
            return Handle(
                profile=profile.document.name,
                client=client,
                informers=self.informers,
                evictor=evictor,
                recorder=events.recorder(profile.document.name),
                clock=process.clock,
                random=process.random,
                metrics=process.metrics,
                dry_run=document.dry_run,
                node_selector=profile.document.node_selector,
                gates=gates,
            )

        make_limiter = partial(
            EvictionLimiter,
            document.max_no_of_pods_to_evict_per_node,
            document.max_no_of_pods_to_evict_per_namespace,
            document.max_no_of_pods_to_evict_total,
        )
        self._profiles = [build_profile(profile, make_handle) for profile in configuration.profiles]
        reads = any(plugin.reads_recommendations for each in self._profiles for plugin in each.plugins.values())
        self._recommendations = self.informers.informer(RECOMMENDATIONS, absent_is_empty=True) if reads else None
        executor = DryRun() if document.dry_run else Live(client)
        self._cycle = Cycle(self._profiles, make_limiter, self._snapshot, self._pods.get, executor)
        self.cycles = 0
        """Those that have ended since the start."""
        self.is_in_cycle = False

    @property
    def synced(self) -> bool:
        """Whether the initial lists are there."""
        return not self.informers.not_synced

    async def deschedule(self, stop: asyncio.Event) -> None:
        """Work as a leader until ``stop``: plugins with controllers, and cycles, the first at once."""
        await self.informers.wait_synced()
        plugins = [plugin for profile in self._profiles for plugin in profile.plugins.values()]
        for plugin in plugins:
            await self._begin(plugin, stop)
        async with asyncio.TaskGroup() as tasks:
            acting = [] if self._dry_run else plugins
            beside = [tasks.create_task(plugin.run(), name=plugin.name) for plugin in acting]
            beside.append(tasks.create_task(self._run_cycles(), name="descheduling-cycles"))
            await stop.wait()
            self._cycling = False
            for task in beside:
                task.cancel()

    async def _begin(self, plugin: Plugin, stop: asyncio.Event) -> None:
        """Start the plugin; while the API server does not respond, try again until ``stop``."""
        backoff = Backoff(_RETRY, self._clock, self._random)
        while not stop.is_set():
            try:
                await plugin.start()
            except TransportError as error:
                logger.warning("plugin %s cannot start yet: %s", plugin.name, error)
                await unless(stop, self._clock.sleep(backoff.next()))
            else:
                return

    async def run_cycle(self) -> CycleReport:
        """One pass over the cluster."""
        begun = self._clock.monotonic()
        self.is_in_cycle = True
        try:
            report = await self._cycle.run()
            if self._dry_run:
                await self._say_intentions()
        finally:
            self.is_in_cycle = False
        self.cycles += 1
        logger.info(
            "Descheduling cycle done",
            extra=fields(
                evicted=len(report.evicted),
                refused=len(report.refused),
                errors=len(report.errors),
                seconds=round(self._clock.monotonic() - begun, 3),
            ),
        )
        return report

    async def _say_intentions(self) -> None:
        """Log what the controllers would do, unless it was said after the last cycle."""
        found: dict[str, None] = {}
        for profile in self._profiles:
            for plugin in profile.plugins.values():
                try:
                    found |= dict.fromkeys(await plugin.intentions())
                except Exception:
                    logger.exception("what %s would do cannot be found out", plugin.name)
        for sentence in found:
            if sentence not in self._intentions:
                logger.info("In dry run mode: %s", sentence)
        self._intentions = frozenset(found)

    async def explain_rebalance(self) -> RebalanceExplanation:
        """What a cycle that began now would do, and why."""
        return await explain(self._cycle)

    def check_cycles(self) -> str:
        """For health checks: why no cycle has ended for too long while this instance leads; empty otherwise."""
        since = self._heartbeat.seconds_since()
        if not self._cycling or since is None or since <= _MISSED * (self._interval + _CYCLE_DEADLINE):
            return ""
        return f"no descheduling cycle has ended for {since:.0f}s"

    async def _run_cycles(self) -> None:
        """From start to start; a cycle that takes longer delays the next, so that no two overlap."""
        self._cycling = bool(self._interval)
        self._heartbeat.beat()
        while True:
            begun = self._clock.monotonic()
            with self._heartbeat.iteration():
                await self.run_cycle()
            if not self._interval:
                logger.info("deschedulingInterval is 0: there was one cycle, and there will be no other")
                return
            await self._clock.sleep(max(0.0, begun + self._interval - self._clock.monotonic()))

    def _snapshot(self) -> Snapshot:
        """In the order of names, so that equal clusters are treated alike."""
        nodes = [
            node
            for node in self._nodes.list()
            if is_ready(node) and (self._selector is None or self._selector.matches(node.metadata.labels))
        ]
        nodes.sort(key=lambda node: node.metadata.name)
        return Snapshot(
            nodes=nodes,
            pods_by_node={node.metadata.name: self._pods_of(node.metadata.name) for node in nodes},
            now=self._clock.now(),
            monotonic=self._clock.monotonic(),
            node_metrics={metric.metadata.name: metric for metric in self._metrics.list()},
            reservations=reservations_by_node(self._reservations.list()),
            recommendations=self._index_recommendations(),
        )

    def _index_recommendations(self) -> RecommendationIndex:
        index = RecommendationIndex()
        for each in self._recommendations.list() if self._recommendations is not None else ():
            index.put(each)
        return index

    def _pods_of(self, node: str) -> Sequence[Pod]:
        return sorted(self._pods.by_index(NODE_INDEX, node), key=lambda pod: pod.metadata.key)


def _node_name(pod: Pod) -> Sequence[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []
