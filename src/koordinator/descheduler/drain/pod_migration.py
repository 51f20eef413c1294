"""One pod of a DrainNode: from waiting, over a place that is reserved for it, to another node."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from koordinator.api import drain_node as drains
from koordinator.api import pod_migration_job as jobs
from koordinator.api import reservation as reservations
from koordinator.api.drain_node import CONFIRMED, WAIT_FIRST, DrainNode, PodMigration
from koordinator.api.kinds import POD_MIGRATION_JOBS, RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.base.durations import has_passed
from koordinator.descheduler.drain.objects import job_for
from koordinator.descheduler.drain.plan import (
    Action,
    DrainFacts,
    ReservePlace,
)
from koordinator.descheduler.drain.pod_rules import PodRules
from koordinator.descheduler.migration.job_facts import EVICTED_POD, holds_nothing
from koordinator.descheduler.plan_controller import CreateObject, DeleteObject, PatchOther

RETRY: Final = timedelta(minutes=1)
TRIES: Final = 3
"""Jobs for one pod; the last one that fails stands."""
_DAY: Final = 24 * 3600.0
_EXTEND: Final = 6 * 3600.0
"""Seconds before its end at which a Reservation is extended."""
_ENDED: Final = frozenset({jobs.FAILED, jobs.ABORTED})

Advance = tuple[PodMigration | None, tuple[Action, ...]]
"""What becomes of the entry, None for an entry that is dropped; and what is to be done for that."""


def first_seen(drain: DrainNode, pod: Pod, now: datetime) -> PodMigration:
    """The entry of a pod that was not there before."""
    return PodMigration(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        pod_name=pod.metadata.name,
        phase=drains.POD_WAITING,
        start_timestamp=now,
        last_transition_timestamp=now,
        started_after_confirmed=drain.spec.confirm_state == CONFIRMED and drain.status.phase == drains.RUNNING,
    )


@dataclass(frozen=True, slots=True)
class PodStep:
    """Looks at one entry; ``pod`` is None once it is gone."""

    drain: DrainNode
    entry: PodMigration
    pod: Pod | None
    facts: DrainFacts
    rules: PodRules
    now: datetime

    def advance(self) -> Advance:
        if self.pod is None:
            return self._gone()
        if self.entry.phase == drains.POD_SUCCEED:
            return self.entry, ()
        if self.entry.phase != drains.POD_MIGRATING:
            if self.pod.metadata.deletion_timestamp is not None:
                return self._at(drains.POD_MIGRATING, "pod is terminating"), ()
            obstacle = self.rules.obstacle(self.pod)
            if obstacle:
                return self._at(drains.POD_UNMIGRATABLE, obstacle), ()
        match self.entry.phase:
            case drains.POD_UNMIGRATABLE | drains.POD_WAITING:
                return self._wait(self.pod), ()
            case drains.POD_READY:
                return self._reserve(self.pod)
            case drains.POD_UNAVAILABLE:
                return self._reserve_again()
            case drains.POD_AVAILABLE:
                return self._start(self.pod)
            case drains.POD_FAILED:
                return self._try_again()
            case _:
                return self._await_job(self.pod)

    @property
    def _reservation(self) -> Reservation | None:
        return self.facts.reservations.get(self.entry.reservation_name)

    @property
    def _job(self) -> PodMigrationJob | None:
        return self.facts.jobs.get(self.entry.pod_migration_job_name)

    def _at(self, phase: str, message: str = "") -> PodMigration:
        entry = self.entry
        changed = self.now if entry.phase != phase else entry.last_transition_timestamp
        return replace(entry, phase=phase, message=message, last_transition_timestamp=changed)

    def _gone(self) -> Advance:
        entry, found, job = self.entry, self._reservation, self._job
        if job is not None and job.status.phase not in (*_ENDED, jobs.SUCCEEDED):
            waiting = self._at(drains.POD_MIGRATING, "waiting for the replacement of the pod")
            return replace(waiting, pod_migration_job_phase=job.status.phase), ()
        if not entry.reservation_name and not entry.pod_migration_job_name:
            return None, ()
        phase = job.status.phase if job is not None else entry.pod_migration_job_phase
        gone = replace(self._at(drains.POD_SUCCEED), pod_migration_job_phase=phase)
        # The replacement uses the Reservation of a pod that was moved, unless there is nothing in it to use.
        is_unused = found is not None and (not entry.pod_migration_job_name or holds_nothing(found))
        return gone, (DeleteObject(RESERVATIONS, found),) if found is not None and is_unused else ()

    def _wait(self, pod: Pod) -> PodMigration:
        policy, is_own = self.rules.policy(pod)
        since = self.entry.start_timestamp if is_own else self.drain.metadata.creation_timestamp
        if policy.mode == WAIT_FIRST and since is not None and not has_passed(policy.wait_duration, since, self.now):
            return self._at(drains.POD_WAITING, "pod may end by itself")
        return self._at(drains.POD_READY)

    def _reserve(self, pod: Pod) -> Advance:
        if self.rules.is_moved_directly(pod):
            return self._at(drains.POD_AVAILABLE), ()
        name = self.entry.reservation_name or self._name("")
        entry = replace(self._at(drains.POD_READY), reservation_name=name)
        found = self.facts.reservations.get(name)
        if found is None:
            return entry, (ReservePlace(pod, name),)
        return self._with_reservation(found, entry), ()

    def _with_reservation(self, found: Reservation, entry: PodMigration) -> PodMigration:
        """Where a pod is that has this Reservation and no job yet."""
        status = found.status
        entry = replace(entry, reservation_phase=status.phase, target_node=status.node_name)
        unschedulable = next(
            (each for each in status.conditions if each.reason == reservations.REASON_UNSCHEDULABLE), None
        )
        if status.phase == reservations.AVAILABLE:
            phase, message = drains.POD_AVAILABLE, ""
        elif status.phase in (reservations.FAILED, reservations.SUCCEEDED):
            phase, message = drains.POD_UNAVAILABLE, f"Reservation {found.metadata.name} is {status.phase}"
        elif unschedulable is not None:
            phase, message = drains.POD_UNAVAILABLE, unschedulable.message
        else:
            phase, message = drains.POD_READY, ""
        changed = self.now if phase != self.entry.phase else entry.last_transition_timestamp
        return replace(entry, phase=phase, message=message, last_transition_timestamp=changed)

    def _reserve_again(self) -> Advance:
        found = self._reservation
        if found is not None and found.status.phase not in (reservations.FAILED, reservations.SUCCEEDED):
            return self._with_reservation(found, self.entry), ()
        if not self._has_waited():
            return self.entry, ()
        fresh = replace(self._at(drains.POD_READY), reservation_phase="", target_node="")
        return fresh, (DeleteObject(RESERVATIONS, found),) if found is not None else ()

    def _start(self, pod: Pod) -> Advance:
        directly, found = self.rules.is_moved_directly(pod), self._reservation
        if not directly and (found is None or found.status.phase != reservations.AVAILABLE):
            lost = f"Reservation {self.entry.reservation_name} is {found.status.phase if found is not None else 'gone'}"
            return self._at(drains.POD_UNAVAILABLE, lost), ()
        if self.drain.spec.confirm_state != CONFIRMED:
            return self.entry, self._extended(found)
        name = self.entry.reservation_name or self.entry.pod_migration_job_name or self._name("")
        return replace(self._at(drains.POD_MIGRATING), pod_migration_job_name=name), self._job_action(name, directly)

    def _job_action(self, name: str, directly: bool) -> tuple[Action, ...]:
        if name in self.facts.jobs:
            return ()
        pod = f" for pod {self.entry.namespace}/{self.entry.pod_name}"
        return (CreateObject(POD_MIGRATION_JOBS, job_for(self.drain, self.entry, name, directly=directly), pod),)

    def _await_job(self, pod: Pod) -> Advance:
        """A pod that a job moves, or that is on its way out by itself."""
        name, job = self.entry.pod_migration_job_name, self._job
        if job is None:
            return self.entry, self._job_action(name, self.rules.is_moved_directly(pod)) if name else ()
        entry = replace(self.entry, pod_migration_job_phase=job.status.phase, pod_migration_job_paused=job.spec.paused)
        step = PodStep(self.drain, entry, pod, self.facts, self.rules, self.now)
        if job.status.phase in _ENDED:
            return step._at(drains.POD_FAILED, f"{job.status.reason}: {job.status.message}"), ()
        if job.status.phase == jobs.SUCCEEDED:
            return step._at(drains.POD_SUCCEED), ()
        refused = EVICTED_POD in job.metadata.annotations and job.status.status != jobs.EVICTION
        return step._at(drains.POD_MIGRATING, "waiting for disruption budget" if refused else ""), ()

    def _try_again(self) -> Advance:
        tries, found = self._tries, self._reservation
        if tries >= TRIES or not self._has_waited():
            return self.entry, ()
        next_name = self._name(f"-{tries + 1}")
        directly = not self.entry.reservation_name
        fresh = replace(
            self._at(drains.POD_READY),
            reservation_name="" if directly else next_name,
            reservation_phase="",
            target_node="",
            pod_migration_job_name=next_name if directly else "",
            pod_migration_job_phase="",
        )
        return fresh, (DeleteObject(RESERVATIONS, found),) if found is not None else ()

    @property
    def _tries(self) -> int:
        name = self.entry.pod_migration_job_name
        suffix = name.removeprefix(self._name(""))
        return int(suffix[1:]) if suffix[1:].isdecimal() else 1

    def _name(self, suffix: str) -> str:
        return f"{self.drain.metadata.name}-{self.entry.uid[:8]}{suffix}"

    def _has_waited(self) -> bool:
        since = self.entry.last_transition_timestamp
        return since is None or has_passed(RETRY, since, self.now)

    def _extended(self, found: Reservation | None) -> tuple[Action, ...]:
        """A place that waits for a confirmation must not expire, unless the drain does."""
        if found is None or self.drain.spec.ttl or found.metadata.creation_timestamp is None or not found.spec.ttl:
            return ()
        age = (self.now - found.metadata.creation_timestamp).total_seconds()
        if found.spec.ttl.total_seconds() - age > _EXTEND:
            return ()
        name, longer = found.metadata.name, {"spec": {"ttl": f"{int(age + _DAY)}s"}}
        return (PatchOther(f"keep Reservation {name} for longer", RESERVATIONS, name, longer),)
