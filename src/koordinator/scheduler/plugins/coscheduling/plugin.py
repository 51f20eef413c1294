"""The Coscheduling plugin: gangs, whose members get their nodes together or not at all. Its parts pass the progress of
each pod to the gang cache, and return the cache's result to the scheduler: which pods are tried, in which order, what
becomes of an attempt, and which pods are bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from prometheus_client.registry import Collector

from koordinator.api.annotations import BIND_GANG_KEYS
from koordinator.api.cluster_network_topology import DEFAULT_NAME
from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES, GENERIC_WORKLOADS, POD_GROUPS, Kind
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.model.gang_declaration import GENERIC_WORKLOAD, WHOLE, Defaults, gang_id_of
from koordinator.scheduler.engine.binding_points import (
    ClusterWriter,
    ControllerWriter,
    CyclePreFilterPlugin,
    CycleState,
    PermitPlugin,
    PodChanges,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    Wait,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import EventHandler, PreEnqueuePlugin, Reason
from koordinator.scheduler.engine.framework_hooks import (
    Controller,
    ControllerProvider,
    DiagnosisPlugin,
    FailureHandler,
    FinishedPodHandler,
    MetricsProvider,
    NextPodPlugin,
    PostFilterTransformer,
    QuestionedJob,
    ReservationPreBindPlugin,
)
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NO_PLAN, FailedAttempt, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.controllers import GangFaultController, PodGroupController
from koordinator.scheduler.plugins.coscheduling.disruption import GangDisruption
from koordinator.scheduler.plugins.coscheduling.documents import GangServices, preemption_document
from koordinator.scheduler.plugins.coscheduling.gang import Group, MemberState, gang_of
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from koordinator.scheduler.plugins.coscheduling.gangs import GangPart, Gangs
from koordinator.scheduler.plugins.coscheduling.job_preemption import Job, JobPreemption
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import (
    ClusterTopology,
    TopologyStatusController,
)
from koordinator.scheduler.plugins.coscheduling.network_topology.placement import GangPlacement, NetworkScore
from koordinator.scheduler.plugins.preemption import SUCCESS, Plan

_ALREADY_TRIED: Final = "preemption already attempted"


class GangQueueing(GangPart, PreEnqueuePlugin, NextPodPlugin):
    """Admits complete gangs to the queue, and has the members of a gang tried right after each other."""

    def __init__(self, args: Any, view: ClusterView, gangs: Gangs) -> None:
        super().__init__(args, view, gangs)
        gangs.queueing.append(self)

    def pre_enqueue(self, pod: Pod) -> Reason | None:
        error = self.cache.admission_error(pod)
        return Reason(error, unresolvable=True) if error else None

    def next_pod(self) -> str | None:
        return self.gangs.tell(self.cache.next_pod) if self.cache.wave is not None else None

    def keeps_back_off(self, pod: PodInfo) -> bool:
        """True for members of gangs: the nodes that members release when their gang fails look like free capacity for
        the member that failed, so that without back-off the gang would be tried over and over."""
        return bool(gang_of(pod))

    def not_freed_by(self, pod: PodInfo) -> Collection[str]:
        """Members of its group that found no node in an attempt that began with a member of the same spec: they would
        only fail the same way."""
        group = self.cache.group_of(pod.uid) if gang_of(pod) else None
        return group.need_foreign_capacity if group is not None else ()


class GangCycle(
    GangPart, CyclePreFilterPlugin, PostFilterPlugin, PostFilterTransformer, FailureHandler, DiagnosisPlugin
):
    """An attempt of a gang: it begins with the first member that is tried, and the first one without a node ends it."""

    sees_all_attempts = True

    def __init__(self, args: Any, view: ClusterView, gangs: Gangs, placement: GangPlacement | None) -> None:
        """``placement`` is None unless the profile respects the network topology requirements of gangs."""
        super().__init__(args, view, gangs)
        self._placement = placement
        self._preempts = bool(args.enable_preemption)
        self._last_preemption: tuple[str, dict[str, Any]] = "", {}
        """The uid of the last pod that PostFilter was called for, and the document of its preemption; else empty."""

    def concerns(self, pod: PodInfo) -> bool:
        return self._preempts or super().concerns(pod)

    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        self._last_preemption = "", {}
        if not gang_of(pod):
            return None
        if self._placement is not None and (refusal := self._placement.refusal(pod)) is not None:
            return refusal
        error = self.gangs.tell(self.cache.begin_attempt, pod.uid)
        self.gangs.attempt_begun()
        if self._placement is not None:
            self._placement.begun(pod)
        return Reason(error, unresolvable=True) if error else None

    def result_key(self, pod: PodInfo) -> Hashable:
        # Without preemption the result is the same for all pods.
        return None if self._preempts else ()

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        """With ``enablePreemption``, preempt for all pending members of the pod's group at once, or for the pod alone
        if it is in no gang. This is tried once in each attempt of a group."""
        if not self._preempts:
            return NO_PLAN
        began = self.handle.monotonic()
        job, plan = self._preempted(pod, attempt)
        self.gangs.metrics.preemption_ended(job, plan.outcome, began, self.handle.monotonic())
        self._last_preemption = pod.uid, preemption_document(pod, job, plan)
        return plan.result

    def _preempted(self, pod: PodInfo, attempt: FailedAttempt) -> tuple[str, Plan]:
        """The metric label of the job, empty if preemption was not tried again for it, and the plan."""
        group, wave = self.cache.group_of(pod.uid), self.cache.wave_of(pod.uid)
        if group is None or wave is None:
            return pod.key, self._preemption(Job(pod, (pod,), {}, pod.key)).plan(pod, attempt)
        if wave.preemption:
            again = self._preemption(Job(pod, (pod,), {}, group.id))
            return "", again.unchanged(pod, _ALREADY_TRIED, wave.preemption)
        job = self._job(pod, group)
        if self._placement is not None:
            job = self._placement.job(job, wave)
        plan = self._preemption(job).plan(pod, attempt)
        wave.preemption = f"{_ALREADY_TRIED} by {pod.key} with message {plan.message}"
        wave.regain = plan.message if plan.outcome == SUCCESS else ""
        return group.id, plan

    def _preemption(self, job: Job) -> JobPreemption:
        return JobPreemption(self, job)

    def _job(self, pod: PodInfo, group: Group) -> Job:
        found = {each.uid: each for each in group.members(MemberState.PENDING) if each.is_schedulable}
        others = [self.gangs.pending[uid] for uid in found if uid != pod.uid and uid in self.gangs.pending]
        waiting = {}
        for each in group.members(MemberState.WAITING):
            if (held := self.view.waiting.get(each.uid)) is not None:
                waiting[each.uid] = (self.gangs.pending.get(each.uid, held.pod), held.node_name)
        return Job(pod, (pod, *others), waiting, group.id)

    def after_post_filter(self, pod: PodInfo, why: str) -> None:
        """The first member for which there is no node ends the attempt of a Strict gang."""
        self.after_failure(pod, why)

    def after_failure(self, pod: PodInfo, message: str) -> None:
        """Any other failure of a member, such as the error of a plugin, ends the attempt of a Strict gang, too."""
        if gang_of(pod):
            wave = self.cache.wave
            if wave is not None and not wave.failure and wave.group.is_strict:
                # Record the members' nodes before they are released.
                wave.held = self._held(wave.group)
            self.gangs.tell(self.cache.attempt_failed, pod.uid, message)

    def _held(self, group: Group) -> Counter[str]:
        """Node -> how many members of the group are assumed on it and wait at Permit."""
        members = (uid for gang in group.gangs.values() for uid in gang.by_state[MemberState.WAITING])
        waiting = (self.view.waiting.get(uid) for uid in members)
        return Counter(held.node_name for held in waiting if held is not None)

    def questioned_job(self, pod: PodInfo) -> QuestionedJob | None:
        group, wave = self.cache.group_of(pod.uid), self.cache.wave_of(pod.uid)
        about, found = self._last_preemption
        preemption = found if about == pod.uid else None
        if group is None:
            return QuestionedJob(pod.key, {}, "", preemption) if preemption is not None else None
        if wave is None:
            return QuestionedJob(group.id, {}, "", preemption)
        cause = wave.failure if group.failed_member != pod.uid else ""
        plan = wave.plan.diagnosis if wave.plan is not None else None
        return QuestionedJob(group.id, wave.held or self._held(group), cause, preemption, plan)


class GangBinding(GangPart, ReservePlugin, PermitPlugin, PreBindPlugin, ReservationPreBindPlugin, PostBindPlugin):
    """Holds members that have a node at Permit until enough of them have one."""

    def concerns(self, pod: PodInfo) -> bool:
        # Annotations of an earlier attempt in a gang are removed, too.
        return super().concerns(pod) or any(key in pod.pod.metadata.annotations for key in BIND_GANG_KEYS)

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        if gang_of(pod):
            self.gangs.tell(self.cache.unreserve, pod.uid)

    def permit(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | Wait | None:
        if not gang_of(pod):
            return None
        try:
            seconds = self.gangs.tell(self.cache.permit, pod.uid)
        except LookupError as error:
            return Reason(str(error))
        return Wait(seconds) if seconds is not None else None

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        return bool(self._binding_changes(pod.uid, pod.pod.metadata.annotations))

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        changes.annotations.update(self._binding_changes(pod.uid, pod.pod.metadata.annotations))

    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        metadata = reservation.metadata
        changes.annotations.update(self._binding_changes(metadata.uid, metadata.annotations))

    def _binding_changes(self, uid: str, present: Mapping[str, str]) -> Mapping[str, str | None]:
        """Annotations by which node agents recognise pods that are bound together; None removes those of an earlier
        attempt."""
        member = self.cache.by_uid.get(uid)
        if member is not None and member.bound_with > 1 and member.gang.group is not None:
            group_id, count = member.gang.group.id, str(member.bound_with)
            return dict(zip(BIND_GANG_KEYS, (group_id, count) * 2, strict=True))
        return {key: None for key in BIND_GANG_KEYS if key in present}

    def post_bind(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        if gang_of(pod):
            self.gangs.tell(self.cache.bound, pod.uid)


class Coscheduling(EventHandler, FinishedPodHandler, ControllerProvider, MetricsProvider):
    name = GangPart.name
    handle: Handle
    watches: ClassVar[tuple[Kind[Any], ...]] = (POD_GROUPS, CLUSTER_NETWORK_TOPOLOGIES, GENERIC_WORKLOADS)
    part_types = (GangQueueing, GangCycle, GangPlacement, NetworkScore, GangBinding, GangServices, GangDisruption)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        defaults = Defaults(args.default_timeout.total_seconds(), args.default_match_policy)
        reads_workloads = GENERIC_WORKLOAD in view.gates
        self.gangs = view.share("coscheduling", lambda: Gangs(GangCache(defaults, reads_workloads=reads_workloads)))
        if view.network_topology and self.gangs.topology is None:
            self.gangs.topology = ClusterTopology()
        shared = args, view, self.gangs
        placement = GangPlacement(*shared) if args.aware_network_topology else None
        always = GangQueueing(*shared), GangCycle(*shared, placement), NetworkScore(*shared), GangBinding(*shared)
        disruption = GangDisruption(*shared) if args.gang_policy == WHOLE else None
        self.parts = (*always, GangServices(*shared), *(part for part in (placement, disruption) if part is not None))

    @property
    def watched_kinds(self) -> tuple[Kind[Any], ...]:
        topologies = (CLUSTER_NETWORK_TOPOLOGIES,) if self.gangs.topology is not None else ()
        return POD_GROUPS, *topologies, *((GENERIC_WORKLOADS,) if GENERIC_WORKLOAD in self.view.gates else ())

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
        found: list[Controller] = [PodGroupController(writer, self.gangs), GangFaultController(writer, self.gangs)]
        if self.gangs.topology is not None:
            topologies = partial(self.view.objects_of, CLUSTER_NETWORK_TOPOLOGIES)
            found.append(TopologyStatusController(writer, self.gangs.topology, topologies))
        return found

    def collectors(self) -> Sequence[Collector]:
        return (self.gangs.metrics,)
