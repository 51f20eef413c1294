"""The controllers of gangs: one keeps the status of PodGroups, that is how many members have a node, run, have
finished; the other reports, by events, invalid gang declarations and why the members of a gang are not tried.

A pod that PreEnqueue keeps out of the queue has no scheduling attempt, and so neither an event nor a condition. Without
the second controller neither the pod nor the PodGroup would show, for example, that a gang of the group is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from koordinator.api import pod_group as phases
from koordinator.api.codec import to_document
from koordinator.api.kinds import POD_GROUPS
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup, PodGroupStatus
from koordinator.api.struct_fields import struct_fields
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.plugins.coscheduling.documents import what_it_waits_for
from koordinator.scheduler.plugins.coscheduling.gang import Gang, MemberState
from koordinator.scheduler.plugins.coscheduling.gangs import Gangs

_GATHERING: Final = 0.5
"""Seconds for which changes are batched before they are written: most come in bursts, and each write is a request."""
_IDLE: Final = 10.0
_AFTER_FAILURE: Final = 10.0
_ENDED: Final = (phases.FINISHED, phases.FAILED)
_FORGOTTEN: Final = timedelta(hours=48)


@dataclass(eq=False)
class PodGroupController:
    """Patches the status of changed PodGroups, each by itself: one that is refused, or not answered, is tried again
    later, and the others do not wait for it."""

    writer: ControllerWriter
    gangs: Gangs
    name: str = "PodGroupController"

    async def run(self) -> None:
        """Run until cancelled."""
        changed, writing = self.gangs.changed, set[str]()
        changed.update(self.gangs.pod_groups)
        while True:
            if changed <= writing:
                await self.writer.until(lambda: not changed <= writing, _IDLE)
            await self.writer.sleep(_GATHERING)
            for gang_id in sorted(changed - writing):
                changed.discard(gang_id)
                writing.add(gang_id)
                self.writer.start(self._keep(gang_id, writing), f"status of PodGroup {gang_id}")

    async def _keep(self, gang_id: str, writing: set[str]) -> None:
        """Write the status of one PodGroup, which is in ``writing`` meanwhile, so that its writes keep their order."""
        try:
            await self._write(gang_id)
        except KoordinatorError as error:
            self.writer.warn(f"the status of PodGroup {gang_id} is not written yet: {error}")
            await self.writer.sleep(_AFTER_FAILURE)
            self.gangs.changed.add(gang_id)
        finally:
            writing.discard(gang_id)

    async def _write(self, gang_id: str) -> None:
        gangs, now = self.gangs, self.gangs.view.now
        pod_group, gang = gangs.pod_groups.get(gang_id), gangs.cache.gangs.get(gang_id)
        if pod_group is None or gang is None or now is None:
            return
        status = observed_status(pod_group, gang, now, gangs.finished(gang_id))
        patch = {
            field.wire_name: to_document(getattr(status, field.name))
            for field in struct_fields(PodGroupStatus)
            if getattr(status, field.name) != getattr(pod_group.status, field.name)
        }
        if patch:
            metadata = pod_group.metadata
            await self.writer.patch(POD_GROUPS, metadata.name, metadata.namespace, {"status": patch})


def observed_status(pod_group: PodGroup, gang: Gang, now: datetime, finished: Mapping[str, Pod]) -> PodGroupStatus:
    """The final status that repeated ``next_status`` reaches: a phase that would be left at once is not written."""
    seen = [pod_group.status]
    while (status := next_status(msgspec.structs.replace(pod_group, status=seen[-1]), gang, now, finished)) not in seen:
        seen.append(status)
    return seen[-1]


def next_status(pod_group: PodGroup, gang: Gang, now: datetime, finished: Mapping[str, Pod]) -> PodGroupStatus:
    """The next status, from the current one, the gang's members and its ``finished`` pods by uid; Koordinator 1.8,
    pkg/scheduler/plugins/coscheduling/controller."""
    status, minimum = pod_group.status, pod_group.spec.min_member
    if status.phase in _ENDED or _is_forgotten(pod_group):
        return status
    if not status.phase:
        return msgspec.structs.replace(status, phase=phases.PENDING)
    # A pod that has just finished may be in both: active and finished pods come by separate watches.
    pods = {**{uid: member.pod for uid, member in gang.members.items()}, **finished}
    if status.phase == phases.PENDING:
        if len(pods) < minimum or minimum <= 0:
            return status
        return msgspec.structs.replace(status, phase=phases.PRE_SCHEDULING, occupied_by=_owners(pods.values()))
    if not pods:
        return msgspec.structs.replace(status, phase=phases.PENDING)
    on_nodes = {*gang.by_state[MemberState.BOUND], *(uid for uid, pod in finished.items() if pod.spec.node_name)}
    return _counted(status, minimum, pods.values(), len(on_nodes), now)


def _counted(
    status: PodGroupStatus, minimum: int, pods: Collection[Pod], scheduled: int, now: datetime
) -> PodGroupStatus:
    """The status by the counts of pods; later rules override earlier ones."""
    by_phase = Counter(pod.status.phase for pod in pods)
    running, succeeded, failed = by_phase["Running"], by_phase["Succeeded"], by_phase["Failed"]
    started = status.schedule_start_time
    if scheduled < minimum:
        phase, started = phases.SCHEDULING, started or now
    else:
        phase = phases.SCHEDULED
        if succeeded + running >= minimum:
            phase = phases.RUNNING
    if failed and failed + running + succeeded >= minimum:
        phase = phases.FAILED
    if succeeded >= minimum:
        phase = phases.FINISHED
    return PodGroupStatus(phase, status.occupied_by, scheduled, running, succeeded, failed, started)


def _owners(pods: Iterable[Pod]) -> str:
    """The owners of the first pod that has any, as ``namespace/name``, separated by commas; empty if none has."""
    for pod in pods:
        metadata = pod.metadata
        if metadata.owner_references:
            return ",".join(sorted(f"{metadata.namespace}/{owner.name}" for owner in metadata.owner_references))
    return ""


def _is_forgotten(pod_group: PodGroup) -> bool:
    """Whether it was created more than 48 hours before its members were scheduled, and none of them runs."""
    status, created = pod_group.status, pod_group.metadata.creation_timestamp
    if status.schedule_start_time is None or created is None:
        return False
    waited = status.schedule_start_time - created
    return status.scheduled == pod_group.spec.min_member and not status.running and waited > _FORGOTTEN


_PERIOD: Final = 5.0
PATIENCE: Final = 30.0
"""Seconds for which the same must be missing before it is reported: a group's pods and gangs are created one by one."""


@dataclass(slots=True)
class _KnownFaults:
    """The faults of one gang."""

    problems: tuple[str, ...] = ()
    """The problems of its declaration that were reported."""
    missing: str = ""
    """What it lacks."""
    since: float = 0.0
    """Since when, in seconds of the monotonic clock."""
    reported: set[tuple[str, str]] = field(default_factory=set)
    """What it lacked when that was reported, with the uid of each pod."""


@dataclass(eq=False)
class GangFaultController:
    """Checks all gangs every few seconds, and reports each fault once as long as it lasts."""

    writer: ControllerWriter
    gangs: Gangs
    name: str = "GangFaultController"
    _known: dict[str, _KnownFaults] = field(default_factory=dict)
    """By id of the gang."""

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            self.look()
            await self.writer.sleep(_PERIOD)

    def look(self) -> None:
        """Report new faults."""
        gangs = self.gangs.cache.gangs
        self._known = {gang_id: self._known.get(gang_id) or _KnownFaults() for gang_id in gangs}
        for gang_id, known in self._known.items():
            self._report_problems(gangs[gang_id], known)
            self._report_missing(gangs[gang_id], known, self.writer.monotonic())

    def _report_problems(self, gang: Gang, known: _KnownFaults) -> None:
        problems = gang.declaration.problems if gang.declaration is not None else ()
        for problem in problems:
            if problem not in known.problems:
                about = next((member.pod for member in gang.members.values()), None)
                if not self.gangs.event(gang, "Warning", "InvalidPodGroup", "Reconcile", problem) and about is not None:
                    self.gangs.pod_event(about, "InvalidGang", "Reconcile", problem)
        known.problems = problems

    def _report_missing(self, gang: Gang, known: _KnownFaults, now: float) -> None:
        pending = [] if gang.is_admitted else [*gang.by_state[MemberState.PENDING].values()]
        text = " ".join(what_it_waits_for(self.gangs.cache, gang)) if pending else ""
        if text != known.missing:
            known.missing, known.since = text, now
        if not text:
            known.reported.clear()
        elif now - known.since >= PATIENCE:
            new = [member.pod for member in pending if (text, member.uid) not in known.reported]
            if new:
                self._report_on(gang, new, f"the gang {gang.id} is not tried: {text}")
                known.reported = {(text, member.uid) for member in pending}

    def _report_on(self, gang: Gang, pods: Iterable[Pod], note: str) -> None:
        """Record an event on those of the pods that this scheduler schedules, and on the PodGroup."""
        profiles = self.gangs.admitting_profiles
        pods = [pod for pod in pods if pod.spec.scheduler_name in profiles]
        if not pods:
            return
        self.gangs.event(gang, "Warning", "FailedScheduling", "Scheduling", note)
        for pod in pods:
            if pod.metadata.uid not in self.gangs.view.pseudo_pods:
                self.gangs.pod_event(pod, "FailedScheduling", "Scheduling", note)
