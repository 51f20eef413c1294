"""Placing gangs by the network topology: the first member that is tried plans the nodes of all, the others follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import PluginError, Reason
from koordinator.scheduler.engine.framework_hooks import FindOneNodePlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.simulation import Simulation
from koordinator.scheduler.engine.slots import Slots, slots_on, statuses_of
from koordinator.scheduler.plugins.coscheduling.declaration import TopologySpec
from koordinator.scheduler.plugins.coscheduling.gang import MemberState, Wave
from koordinator.scheduler.plugins.coscheduling.gangs import GangPart
from koordinator.scheduler.plugins.coscheduling.job_preemption import Job
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import NO_TOPOLOGY
from koordinator.scheduler.plugins.coscheduling.network_topology.planner import (
    INVALID_PLAN,
    NO_PENDING_PODS,
    NO_PLANNED_PODS,
    Planner,
    TopologyPlan,
    in_turn,
)
from koordinator.scheduler.plugins.preemption import Placements

_TOPOLOGY_EVENTS: Final = object_events(CLUSTER_NETWORK_TOPOLOGIES)
_EVENTS: Final = _TOPOLOGY_EVENTS | {EventKind.NODE_ADD, EventKind.NODE_LABEL}


class GangPlacement(GangPart, FindOneNodePlugin):
    """Plans nodes for the members of the current wave. Only in profiles that respect the network topology requirements
    of gangs."""

    def refusal(self, pod: PodInfo) -> Reason | None:
        """Why no attempt can begin with the pod: its gang has topology requirements, but the network is not known."""
        if self._spec_of(pod) is None or (self.gangs.topology is not None and self.gangs.topology.tree is not None):
            return None
        if self.cache.admission_error(pod.pod) or self._wave_of(pod) is not None:
            return None
        return Reason(NO_TOPOLOGY, unresolvable=True)

    def begun(self, pod: PodInfo) -> None:
        """The attempt of the pod began. The topology requirements of the first pod's gang hold for the whole wave."""
        wave = self._wave_of(pod)
        if wave is not None and wave.attempted == {pod.uid}:
            wave.topology = self._spec_of(pod)

    def find_one_node(self, pod: PodInfo) -> str | Reason | None:
        """The node that is planned for the pod, or why there is none; None if it has no topology requirements. Raises
        PluginError for a member that the plan of its wave lacks."""
        wave = self._wave_of(pod)
        if wave is None or wave.topology is None:
            return None
        if wave.plan is None:
            wave.plan = wave.group.plan = self._planned(pod, wave, wave.topology)
        if wave.plan is None:
            return None
        if wave.plan.refusal:
            return Reason(wave.plan.refusal)
        node = wave.plan.nodes.get(pod.uid)
        if node is None:
            raise PluginError(NO_PLANNED_PODS)
        return node

    def rejected_by(self, pod: PodInfo) -> Collection[str]:
        """The plugins that rejected nodes for the members, if ``find_one_node`` returned a reason."""
        wave = self._wave_of(pod)
        return wave.plan.rejected_by if wave is not None and wave.plan is not None else ()

    def job(self, job: Job, wave: Wave) -> Job:
        """The job with its topology requirements, for preemption. All members are planned when the first one is tried,
        and only then."""
        if wave.topology is None:
            return job
        tree = self.gangs.topology.tree if self.gangs.topology is not None else None
        spec, pods = wave.topology, in_turn(job.pending)

        def place(simulation: Simulation, scores: Mapping[int, int]) -> Placements | str:
            if tree is None or len(wave.attempted) > 1:
                return INVALID_PLAN
            found = self._slots_in(simulation, pods, sorted(scores), job.uids)
            plan = Planner(self.view, tree, spec, pods).plan(found, scores)
            row_of = self.view.columns.row_of
            return plan.refusal or [(pod, row_of[plan.nodes[pod.uid]]) for pod in pods]

        refused = wave.plan if wave.plan is not None and wave.plan.refusal else None
        return replace(job, in_network=place, statuses=refused.statuses if refused is not None else None)

    @staticmethod
    def _slots_in(
        simulation: Simulation, pods: Sequence[PodInfo], rows: Sequence[int], ignoring: Collection[str]
    ) -> Slots:
        counted = [(row, *slots_on(simulation, pods, row, ignoring)) for row in rows]
        counts = np.array([count for _, count, _ in counted], dtype=np.int64)
        failures = [(row, failure) for row, _, failure in counted if failure is not None]
        return Slots(np.array(rows, dtype=np.intp), counts, statuses_of(pods[0], failures))

    def events_to_register(self) -> frozenset[str]:
        """Those that may make a gang fit in the network, beside those of the plugins that rejected its nodes."""
        return _EVENTS

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the event may make the gang of an unschedulable pod fit in the network. True for one member only."""
        if self._spec_of(pod) is None:
            return False
        member = self.cache.by_uid.get(pod.uid)
        group = member.gang.group if member is not None else None
        if group is None or group.failed_member not in ("", pod.uid):
            return False
        return event.kind not in _TOPOLOGY_EVENTS or _spec(event.old) != _spec(event.new)

    def _planned(self, pod: PodInfo, wave: Wave, spec: TopologySpec) -> TopologyPlan | None:
        """The plan for all members to be placed; None if the pod fits on no node at all, which other plugins report."""
        tree = self.gangs.topology.tree if self.gangs.topology is not None else None
        if tree is None:
            raise PluginError(NO_TOPOLOGY)
        pods = in_turn(self._to_place(pod, wave))
        if not pods:
            raise PluginError(NO_PENDING_PODS)
        found = self.handle.slots(pods)
        return Planner(self.view, tree, spec, pods).plan(found) if found is not None else None

    def _to_place(self, pod: PodInfo, wave: Wave) -> list[PodInfo]:
        """The pending members, without those that were tried already."""
        pending = [each for each in wave.group.members(MemberState.PENDING) if each.is_schedulable]
        left = [each.uid for each in pending if each.uid == pod.uid or each.uid not in wave.attempted]
        return [found for uid in left if (found := pod if uid == pod.uid else self.gangs.pending.get(uid)) is not None]

    def _spec_of(self, pod: PodInfo) -> TopologySpec | None:
        """The topology requirements of the pod's gang; None also for a gang whose members are placed one by one."""
        member = self.cache.by_uid.get(pod.uid)
        declaration = member.gang.declaration if member is not None and not member.gang.is_released else None
        return declaration.network_topology if declaration is not None else None

    def _wave_of(self, pod: PodInfo) -> Wave | None:
        wave, member = self.cache.wave, self.cache.by_uid.get(pod.uid)
        if wave is None or member is None or member.gang.group is not wave.group or member.gang.is_released:
            return None
        return wave


def _spec(topology: Any) -> Any:
    return topology.spec if topology is not None else None
