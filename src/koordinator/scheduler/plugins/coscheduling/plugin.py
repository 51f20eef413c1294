"""The Coscheduling plugin: gangs, whose members get their nodes together or not at all. Its parts pass the progress of
each pod to the gang cache, and return the cache's result to the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from prometheus_client.registry import Collector

from koordinator.api.cluster_network_topology import DEFAULT_NAME
from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES, POD_GROUPS, Kind
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.framework_hooks import (
    Controller,
    ControllerProvider,
    FinishedPodHandler,
    MetricsProvider,
)
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.cycle import GangBinding, GangCycle, GangQueueing
from koordinator.scheduler.plugins.coscheduling.declaration import Defaults, gang_id_of
from koordinator.scheduler.plugins.coscheduling.documents import GangServices
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from koordinator.scheduler.plugins.coscheduling.gang_faults import GangFaultController
from koordinator.scheduler.plugins.coscheduling.gangs import GangPart, Gangs
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import ClusterTopology
from koordinator.scheduler.plugins.coscheduling.network_topology.gang_placement import GangPlacement
from koordinator.scheduler.plugins.coscheduling.network_topology.scoring import NetworkScore
from koordinator.scheduler.plugins.coscheduling.network_topology.status import TopologyStatusController
from koordinator.scheduler.plugins.coscheduling.pod_group_status import PodGroupController


class Coscheduling(EventHandler, FinishedPodHandler, ControllerProvider, MetricsProvider):
    name = GangPart.name
    handle: Handle
    watches: ClassVar[tuple[Kind[Any], ...]] = (POD_GROUPS, CLUSTER_NETWORK_TOPOLOGIES)
    part_types = (GangQueueing, GangCycle, GangPlacement, NetworkScore, GangBinding, GangServices)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        defaults = Defaults(args.default_timeout.total_seconds(), args.default_match_policy)
        self.gangs: Gangs = view.shared.setdefault("coscheduling", Gangs(GangCache(defaults), self))
        if view.network_topology and self.gangs.topology is None:
            self.gangs.topology = ClusterTopology()
        shared = args, view, self.gangs
        placement = GangPlacement(*shared) if args.aware_network_topology else None
        always = GangQueueing(*shared), GangCycle(*shared, placement), NetworkScore(*shared), GangBinding(*shared)
        self.parts = (*always, GangServices(*shared), *((placement,) if placement is not None else ()))

    @property
    def watched_kinds(self) -> tuple[Kind[Any], ...]:
        return self.watches if self.gangs.topology is not None else (POD_GROUPS,)

    def watch_scope(self, kind: Kind[Any]) -> tuple[str, str]:
        return ("", f"metadata.name={DEFAULT_NAME}") if kind is CLUSTER_NETWORK_TOPOLOGIES else ("", "")

    @property
    def event_handler(self) -> EventHandler:
        return self.gangs

    def reads_finished(self, pod: Pod) -> bool:
        return bool(gang_id_of(pod))

    def on_finished(self, pod: Pod) -> None:
        self.gangs.on_finished(pod)

    def on_finished_gone(self, pod: Pod) -> None:
        self.gangs.on_finished_gone(pod)

    def controllers(self, writer: ControllerWriter) -> Sequence[Controller]:
        gangs, view = self.gangs, self.view
        pod_groups = partial(view.objects_of, POD_GROUPS)
        found: list[Controller] = [
            PodGroupController(writer, pod_groups, gangs.cache.gangs, gangs.finished, gangs.changed, lambda: view.now),
            GangFaultController(gangs.cache, writer, gangs),
        ]
        if gangs.topology is not None:
            topologies = partial(view.objects_of, CLUSTER_NETWORK_TOPOLOGIES)
            found.append(TopologyStatusController(writer, gangs.topology, topologies))
        return found

    def collectors(self) -> Sequence[Collector]:
        return (self.gangs.metrics,)
