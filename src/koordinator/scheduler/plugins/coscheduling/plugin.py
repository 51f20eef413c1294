"""Coscheduling at the extension points: events into the gang cache, its instructions out to the queue and the pods that
wait."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from prometheus_client.registry import Collector

from koordinator.api.annotations import BIND_GANG_KEYS
from koordinator.api.kinds import POD_GROUPS, Kind
from koordinator.api.meta import Object
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.api.reservation import Reservation
from koordinator.base.services import ServiceError
from koordinator.scheduler.engine.binding_points import (
    ClusterWriter,
    ControllerWriter,
    PermitPlugin,
    PodChanges,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    Wait,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.cycle_state import CyclePreFilterPlugin, CycleState
from koordinator.scheduler.engine.decision import Rejection
from koordinator.scheduler.engine.framework import EventHandler, PreEnqueuePlugin, Reason
from koordinator.scheduler.engine.framework_hooks import (
    Controller,
    ControllerProvider,
    FailureHandler,
    MetricsProvider,
    NextPodPlugin,
    PostFilterTransformer,
    ReservationPreBindPlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NO_PLAN, FailedAttempt, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.declaration import Defaults, gang_id_of
from koordinator.scheduler.plugins.coscheduling.documents import gang_document
from koordinator.scheduler.plugins.coscheduling.explanation import explain_gang
from koordinator.scheduler.plugins.coscheduling.gang import Gang, Group, Member, MemberState, Wave
from koordinator.scheduler.plugins.coscheduling.gang_cache import ALL_ATTEMPTED, SUCCEEDED, GangCache
from koordinator.scheduler.plugins.coscheduling.job_preemption import Job, JobPreemption
from koordinator.scheduler.plugins.coscheduling.metrics import GangMetrics
from koordinator.scheduler.plugins.coscheduling.pod_group_status import PodGroupController
from koordinator.scheduler.services.provider import Service, ServiceProvider

REJECTED_BY: Final = "JobRejectPlugin"
"""In whose name waiting members are turned away, as the original has it."""
_ALREADY_TRIED: Final = "preemption already attempted"
_SHARED: Final = "coscheduling"
_LONGEST_NOTE: Final = 1024


def _shortened(note: str) -> str:
    """The API server refuses the note of an event that is longer."""
    return note if len(note) <= _LONGEST_NOTE else f"{note[: _LONGEST_NOTE - 4]} ..."


def _outcome(result: PostFilterResult) -> str:
    """In a word, of which there are few: it is a label of a metric."""
    return "preempt success" if result.found else result.message.removeprefix("preemption: ")


class Gangs(EventHandler):
    """The gangs of the cluster, which all profiles share: their pods may name different ones."""

    name = "Coscheduling"

    def __init__(self, cache: GangCache, plugin: Coscheduling) -> None:
        """``plugin`` is that of the first profile; what it may do reaches the queue that all profiles share."""
        self.cache = cache
        self.pending: dict[str, PodInfo] = {}
        """Members that have no node, by uid; some of them are assumed on one."""
        self.changed: set[str] = set()
        """The gangs of which the status may have changed."""
        self.metrics = GangMetrics(lambda: self.cache.groups)
        self._began: tuple[Wave, datetime] | None = None
        """The attempt that is under way, since when."""
        self._plugin = plugin

    def on_pod(self, pod: PodInfo, node_name: str) -> None:
        self.cache.set_pod(pod.pod, node_name)
        if node_name or not gang_id_of(pod.pod):
            self.pending.pop(pod.uid, None)
        else:
            self.pending[pod.uid] = pod
        self._note(pod.pod)
        self.carry_out()

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        """What the kubelet reports counts for the status of the PodGroup."""
        if not assumed and (member := self.cache.member(pod.uid)) is not None:
            member.gang.replace_pod(member, pod.pod)
            self._note(pod.pod)

    def _note(self, pod: Pod) -> None:
        if gang_id := gang_id_of(pod):
            self.changed.add(gang_id)

    def on_pod_gone(self, pod: PodInfo) -> None:
        self.cache.remove_pod(pod.uid)
        self.pending.pop(pod.uid, None)
        self._note(pod.pod)
        self.carry_out()

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        if kind is not POD_GROUPS:
            return
        if isinstance(new, PodGroup):
            self.cache.set_pod_group(new)
        else:
            self.cache.remove_pod_group(key)
        self.changed.add(key)
        self.carry_out()

    def carry_out(self) -> None:
        """Do what the cache says."""
        instructions = self.cache.take_instructions()
        if not hasattr(self._plugin, "handle"):
            # Events are shown to a profile that nobody schedules by: there is no queue, and nothing waits.
            return
        handle = self._plugin.handle
        for wave in instructions.ended:
            self._ended(wave)
        for uid in instructions.allow:
            if (waiting := handle.waiting.get(uid)) is not None:
                waiting.allow(Coscheduling.name)
        for uid, message in instructions.reject:
            if (waiting := handle.waiting.get(uid)) is not None:
                waiting.reject(REJECTED_BY, message)
        if instructions.activate:
            handle.activate(instructions.activate)

    def attempt_begun(self) -> None:
        """Note since when the attempt lasts that is under way."""
        wave, now = self.cache.wave, self._plugin.view.now
        if wave is not None and now is not None and (self._began is None or self._began[0] is not wave):
            self._began = wave, now

    def _ended(self, wave: Wave) -> None:
        """One event for the gang beside those of its pods, where there is a PodGroup to record it about."""
        now = self._plugin.view.now
        if self._began is not None and self._began[0] is wave and now is not None:
            seconds = max((now - self._began[1]).total_seconds(), 0.0)
            reason = SUCCEEDED if wave.permitted else ALL_ATTEMPTED
            self.metrics.attempt_ended(reason, len(wave.attempted), seconds)
        self._began = None
        if not wave.permitted and not wave.group.failure:
            return
        for gang in wave.group.gangs.values():
            pod_group = self._plugin.view.objects_of(POD_GROUPS).get(gang.id)
            if pod_group is not None:
                self._record(gang, pod_group, wave)

    def _record(self, gang: Gang, pod_group: PodGroup, wave: Wave) -> None:
        handle = self._plugin.handle
        if wave.permitted:
            note = (
                f"{sum(uid in wave.permitted for uid in gang.members)} members of {gang.id} have a node and are bound"
            )
            handle.object_event(POD_GROUPS, pod_group, "Normal", "Scheduled", "Binding", note)
            return
        failed = self.cache.member(wave.group.failed_member)
        about = failed.key if failed is not None else "a member"
        note = f"no node for {about}, {len(gang.by_state[MemberState.PENDING])} members wait: {wave.group.failure}"
        handle.object_event(POD_GROUPS, pod_group, "Warning", "FailedScheduling", "Scheduling", _shortened(note))


class Coscheduling(
    PreEnqueuePlugin,
    CyclePreFilterPlugin,
    PostFilterPlugin,
    PostFilterTransformer,
    ReservePlugin,
    PermitPlugin,
    PreBindPlugin,
    ReservationPreBindPlugin,
    PostBindPlugin,
    NextPodPlugin,
    FailureHandler,
    EventHandler,
    ControllerProvider,
    MetricsProvider,
    ServiceProvider,
):
    name = "Coscheduling"
    watches: ClassVar[tuple[Kind[Any], ...]] = (POD_GROUPS,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        defaults = Defaults(args.default_timeout.total_seconds(), args.default_match_policy)
        self.gangs: Gangs = view.shared.setdefault(_SHARED, Gangs(GangCache(defaults), self))
        self.cache: GangCache = self.gangs.cache
        self._preemption = JobPreemption(self.name, view) if args.enable_preemption else None

    @property
    def event_handler(self) -> EventHandler:
        return self.gangs

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def pre_enqueue(self, pod: Pod) -> Reason | None:
        error = self.cache.admission_error(pod)
        return Reason(error, unresolvable=True) if error else None

    def next_pod(self) -> str | None:
        uid = self.cache.next_pod()
        if uid is None:
            self.gangs.carry_out()
        return uid

    def keeps_back_off(self, pod: PodInfo) -> bool:
        """What members let go of when their gang has failed is room for the member that has failed: without a pause
        the gang would be tried over and over."""
        return bool(gang_id_of(pod.pod))

    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        if not gang_id_of(pod.pod):
            return None
        error = self.cache.begin_attempt(pod.uid)
        self.gangs.carry_out()
        self.gangs.attempt_begun()
        return Reason(error, unresolvable=True) if error else None

    def result_key(self, pod: PodInfo) -> Hashable:
        # Without preemption there is nothing to ask.
        return None if self._preemption is not None else ()

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        """With ``enablePreemption``: room for all pending members of the pod's group at once, or for the pod alone
        when it is in no gang. It is looked for once in an attempt of a group."""
        if self._preemption is None:
            return NO_PLAN
        began = self.handle.monotonic()
        job, outcome, result = self._preempted(self._preemption, pod, attempt)
        self.gangs.metrics.preemption_ended(job, outcome, began, self.handle.monotonic())
        return result

    def _preempted(
        self, preemption: JobPreemption, pod: PodInfo, attempt: FailedAttempt
    ) -> tuple[str, str, PostFilterResult]:
        """The job in whose name it was tried, how it went, and the plan."""
        member = self.cache.member(pod.uid)
        group = member.gang.group if member is not None and not member.gang.is_released else None
        wave = self.cache.wave
        if group is None or wave is None or wave.group is not group:
            result = preemption.plan(Job(pod, (pod,), {}), attempt)
            return pod.key, _outcome(result), result
        if wave.preemption:
            return "", _ALREADY_TRIED, PostFilterResult(f"preemption: {wave.preemption}")
        result = preemption.plan(self._job(pod, group), attempt)
        outcome = _outcome(result)
        wave.preemption = f"preemption already attempted by {pod.key} with message {outcome}"
        return group.id, outcome, result

    def _job(self, pod: PodInfo, group: Group) -> Job:
        found = {each.uid: each for each in group.members(MemberState.PENDING) if each.is_schedulable}
        others = [self.gangs.pending[uid] for uid in found if uid != pod.uid and uid in self.gangs.pending]
        waiting = {}
        for each in group.members(MemberState.WAITING):
            if (held := self.view.waiting.get(each.uid)) is not None:
                waiting[each.uid] = (held.pod, held.node_name)
        return Job(pod, (pod, *others), waiting)

    def after_post_filter(self, pod: PodInfo, rejection: Rejection) -> None:
        """The first member for which there is no node ends the attempt of a Strict gang."""
        after = rejection.after.message
        self._failed(pod, rejection.message.removesuffix(f" {after}") if after else rejection.message)

    def after_failure(self, pod: PodInfo, message: str) -> None:
        """What ended an attempt otherwise, such as the error of a plugin, ends that of a Strict gang, too."""
        self._failed(pod, message)

    def _failed(self, pod: PodInfo, message: str) -> None:
        if gang_id_of(pod.pod):
            self.cache.attempt_failed(pod.uid, message)
            self.gangs.carry_out()

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        if gang_id_of(pod.pod):
            self.cache.unreserve(pod.uid)
            self.gangs.carry_out()

    def permit(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | Wait | None:
        if not gang_id_of(pod.pod):
            return None
        try:
            seconds = self.cache.permit(pod.uid)
        except LookupError as error:
            return Reason(str(error))
        self.gangs.carry_out()
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
        """What tells node agents which pods are bound together; what an earlier attempt has left is removed."""
        member = self.cache.member(uid)
        if member is not None and member.bound_with > 1 and member.gang.group is not None:
            group_id, count = member.gang.group.id, str(member.bound_with)
            return dict(zip(BIND_GANG_KEYS, (group_id, count) * 2, strict=True))
        return dict.fromkeys(key for key in BIND_GANG_KEYS if key in present)

    def controllers(self, writer: ControllerWriter) -> Sequence[Controller]:
        def pod_groups() -> Mapping[str, PodGroup]:
            return self.view.objects_of(POD_GROUPS)

        return (PodGroupController(writer, pod_groups, self.cache.gangs, self.gangs.changed, lambda: self.view.now),)

    def collectors(self) -> Sequence[Collector]:
        return (self.gangs.metrics,)

    def services(self) -> Mapping[str, Service]:
        return {
            "/gang/:namespace/:name/explanation": self._explanation,
            "/gang/:namespace/:name": self._one,
            "/gangs": self._all,
        }

    def _explanation(self, parameters: Mapping[str, str]) -> Any:
        def node_of(member: Member) -> str:
            waiting = self.view.waiting.get(member.uid)
            return waiting.node_name if waiting is not None else ""

        return explain_gang(self.cache, self._gang(parameters), node_of)

    def _one(self, parameters: Mapping[str, str]) -> Any:
        return gang_document(self._gang(parameters))

    def _gang(self, parameters: Mapping[str, str]) -> Gang:
        gang_id = f"{parameters['namespace']}/{parameters['name']}"
        gang = self.cache.gangs.get(gang_id)
        if gang is None:
            raise ServiceError(404, f"cannot find gang {gang_id}")
        return gang

    def _all(self, parameters: Mapping[str, str]) -> Any:
        return {gang_id: gang_document(gang) for gang_id, gang in self.cache.gangs.items()}

    def post_bind(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        self.cache.bound(pod.uid)
        self.gangs.carry_out()
