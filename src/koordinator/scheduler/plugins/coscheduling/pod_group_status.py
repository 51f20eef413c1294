"""The controller that keeps the status of PodGroups: how many members have a node, run, have finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

import msgspec

from koordinator.api import pod_group as phases
from koordinator.api.kinds import POD_GROUPS
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup, PodGroupStatus
from koordinator.api.timestamps import format_time
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.plugins.coscheduling.declaration import gang_id_of
from koordinator.scheduler.plugins.coscheduling.gang import Gang, MemberState

_GATHERING: Final = 0.5
"""Seconds for which changes are batched before they are written: most come in bursts, and each write is a request."""
_IDLE: Final = 10.0
_AFTER_FAILURE: Final = 10.0
_ENDED: Final = (phases.FINISHED, phases.FAILED)
_FORGOTTEN: Final = timedelta(hours=48)
_NOBODY: Final[Mapping[str, Pod]] = MappingProxyType({})


class FinishedMembers:
    """Finished pods of gangs: they are no longer members, but count in the status of the PodGroup."""

    def __init__(self) -> None:
        self._by_gang: dict[str, dict[str, Pod]] = {}

    def set(self, pod: Pod) -> None:
        """The pod has finished."""
        if gang_id := gang_id_of(pod):
            self._by_gang.setdefault(gang_id, {})[pod.metadata.uid] = pod

    def remove(self, pod: Pod) -> None:
        """The finished pod was deleted."""
        found = self._by_gang.get(gang_id_of(pod), {})
        if found.pop(pod.metadata.uid, None) is not None and not found:
            del self._by_gang[gang_id_of(pod)]

    def of(self, gang_id: str) -> Mapping[str, Pod]:
        """The finished pods of a gang, by uid."""
        return self._by_gang.get(gang_id, _NOBODY)


class PodGroupController:
    """Patches the status of changed PodGroups, each by itself: one that is refused, or not answered, is tried again
    later, and the others do not wait for it. ``changed``: ids of gangs, which the event handlers add and the controller
    clears."""

    name = "PodGroupController"

    def __init__(
        self,
        writer: ControllerWriter,
        pod_groups: Callable[[], Mapping[str, PodGroup]],
        gangs: Mapping[str, Gang],
        finished: FinishedMembers,
        changed: set[str],
        now: Callable[[], datetime | None],
    ) -> None:
        self._writer = writer
        self._pod_groups = pod_groups
        self._gangs = gangs
        self._finished = finished
        self._changed = changed
        self._now = now

    async def run(self) -> None:
        """Run until cancelled."""
        self._changed.update(self._pod_groups())
        writing: set[str] = set()
        while True:
            if self._changed <= writing:
                await self._writer.until(lambda: not self._changed <= writing, _IDLE)
            await self._writer.sleep(_GATHERING)
            for gang_id in sorted(self._changed - writing):
                self._changed.discard(gang_id)
                writing.add(gang_id)
                self._writer.start(self._keep(gang_id, writing), f"status of PodGroup {gang_id}")

    async def _keep(self, gang_id: str, writing: set[str]) -> None:
        """Write the status of one PodGroup, which is in ``writing`` meanwhile, so that its writes keep their order."""
        try:
            await self._write(gang_id)
        except KoordinatorError as error:
            self._writer.warn(f"the status of PodGroup {gang_id} is not written yet: {error}")
            await self._writer.sleep(_AFTER_FAILURE)
            self._changed.add(gang_id)
        finally:
            writing.discard(gang_id)

    async def _write(self, gang_id: str) -> None:
        pod_group, gang, now = self._pod_groups().get(gang_id), self._gangs.get(gang_id), self._now()
        if pod_group is None or gang is None or now is None:
            return
        status = observed_status(pod_group, gang, now, self._finished.of(gang_id))
        patch = _difference(pod_group.status, status)
        if patch:
            metadata = pod_group.metadata
            await self._writer.patch(POD_GROUPS, metadata.name, metadata.namespace, {"status": patch})


def observed_status(
    pod_group: PodGroup, gang: Gang, now: datetime, finished: Mapping[str, Pod] = _NOBODY
) -> PodGroupStatus:
    """The final status that repeated ``next_status`` reaches: a phase that would be left at once is not written."""
    seen = [pod_group.status]
    while (status := next_status(msgspec.structs.replace(pod_group, status=seen[-1]), gang, now, finished)) not in seen:
        seen.append(status)
    return seen[-1]


def next_status(
    pod_group: PodGroup, gang: Gang, now: datetime, finished: Mapping[str, Pod] = _NOBODY
) -> PodGroupStatus:
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


def _difference(before: PodGroupStatus, after: PodGroupStatus) -> dict[str, Any]:
    """The merge patch of the fields that differ."""
    names = {
        "phase": "phase",
        "occupied_by": "occupiedBy",
        "scheduled": "scheduled",
        "running": "running",
        "succeeded": "succeeded",
        "failed": "failed",
    }
    patch: dict[str, Any] = {
        wire: getattr(after, name) for name, wire in names.items() if getattr(before, name) != getattr(after, name)
    }
    if after.schedule_start_time is not None and before.schedule_start_time != after.schedule_start_time:
        patch["scheduleStartTime"] = format_time(after.schedule_start_time)
    return patch
