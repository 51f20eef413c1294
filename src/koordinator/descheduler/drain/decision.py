"""What is to be done about one DrainNode: a pure function of it, the cluster around it and the time."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from koordinator.api import drain_node as drains
from koordinator.api.codec import encode
from koordinator.api.drain_node import DrainNode, DrainNodeCondition, DrainNodeStatus, PodMigration
from koordinator.api.kinds import DRAIN_NODES, POD_MIGRATION_JOBS, RESERVATIONS
from koordinator.api.modification import DONE, DRAINED, Cause, Modification
from koordinator.api.modification import FAILED as NOT_DONE
from koordinator.api.pod_migration_job import FAILED, SUCCEEDED
from koordinator.descheduler.drain.objects import LONGEST_LABEL
from koordinator.descheduler.drain.plan import (
    CLEAN_TAINT,
    CORDONED_BY,
    DRAINED_NODE,
    FINALIZER,
    WAS_UNSCHEDULABLE,
    Action,
    Cordon,
    DrainFacts,
)
from koordinator.descheduler.drain.pod_migration import PodStep, first_seen
from koordinator.descheduler.drain.pod_rules import PodRules
from koordinator.descheduler.migration.job_status import since_transition
from koordinator.descheduler.plan_controller import DeleteObject, ObjectPlan, PatchObject, PlannedEvent

_KEPT: Final = timedelta(minutes=5)
_GIVEN_UP: Final = (drains.REJECTED, drains.CONFIRM_ABORTED)
_OPEN: Final = (drains.POD_WAITING, drains.POD_READY, drains.POD_AVAILABLE, drains.POD_MIGRATING)
_STUCK: Final = (drains.POD_UNMIGRATABLE, drains.POD_UNAVAILABLE, drains.POD_FAILED)


def decide(drain: DrainNode, facts: DrainFacts, rules: PodRules, now: datetime) -> ObjectPlan:
    """The next plan for ``drain``. ``now`` is the wall time."""
    status = drain.status
    if drain.metadata.deletion_timestamp is not None:
        return ObjectPlan(status, _finalize(drain, facts))
    if status.phase == drains.ABORTED:
        end = _end(drain)
        deletion = (DeleteObject(DRAIN_NODES, drain),) if end is not None and now >= end + _KEPT else ()
        return ObjectPlan(status, (*_left_over(facts), *deletion))
    reason = _why_to_give_up(drain, facts, now)
    if reason:
        return _rolled_back(drain, facts, reason)
    if FINALIZER not in drain.metadata.finalizers:
        finalizers = [*drain.metadata.finalizers, FINALIZER]
        return ObjectPlan(status, (PatchObject({"metadata": {"finalizers": finalizers}}),))
    if not status.phase:
        return _entered(drain, replace(status, phase=drains.PENDING), "Initialized")
    if status.phase == drains.PENDING:
        return _begin(drain, facts)
    return _advance(drain, facts, rules, now)


def _why_to_give_up(drain: DrainNode, facts: DrainFacts, now: datetime) -> str:
    end = _end(drain)
    if drain.spec.confirm_state in _GIVEN_UP:
        return f"confirmState is {drain.spec.confirm_state}"
    if len(drain.metadata.name) > LONGEST_LABEL:
        return f"the name of a DrainNode is a label of what belongs to it, and has at most {LONGEST_LABEL} characters"
    if drain.status.phase == drains.COMPLETE:
        return ""
    if facts.renamed_to:
        return f"spec.nodeName must not be changed, from {drain.spec.node_name} to {facts.renamed_to}"
    if facts.drained_by:
        return f"node already drained by {facts.drained_by}"
    return "ttl has passed" if end is not None and now >= end else ""


def _end(drain: DrainNode) -> datetime | None:
    created = drain.metadata.creation_timestamp
    return created + drain.spec.ttl if drain.spec.ttl and created is not None else None


def _rolled_back(drain: DrainNode, facts: DrainFacts, reason: str) -> ObjectPlan:
    status = replace(drain.status, phase=drains.ABORTED, message=reason)
    actions = (*_left_over(facts), *_uncordon(drain))
    event = PlannedEvent("Warning", drains.ABORTED, reason, _record(replace(drain, status=status), NOT_DONE))
    return ObjectPlan(status, actions, (event,))


def _record(drain: DrainNode, outcome: str) -> Modification:
    """Of a drain that has ended."""
    summary = drain.status.pod_migration_summary
    return Modification(
        action=DRAINED,
        outcome=outcome,
        actor=f"{DRAIN_NODES.name}/{drain.metadata.name}",
        node=drain.spec.node_name,
        cause=Cause(code=drain.status.phase),
        since=drain.metadata.creation_timestamp,
        numbers={f"pods{phase}": float(count) for phase, count in summary.items()},
    )


def _left_over(facts: DrainFacts) -> tuple[Action, ...]:
    """Jobs that have not ended, and Reservations: those of pods that have moved are used up."""
    open_jobs = [job for job in facts.jobs.values() if job.status.phase not in (SUCCEEDED, FAILED)]
    return (
        *(DeleteObject(POD_MIGRATION_JOBS, job) for job in open_jobs),
        *(DeleteObject(RESERVATIONS, found) for found in facts.reservations.values()),
    )


def _uncordon(drain: DrainNode) -> tuple[Action, ...]:
    return (Cordon(wanted=False),) if WAS_UNSCHEDULABLE in drain.metadata.annotations else ()


def _finalize(drain: DrainNode, facts: DrainFacts) -> tuple[Action, ...]:
    """Before a DrainNode is deleted: all is as before, but for a node that was drained, unless its spec says so."""
    if FINALIZER not in drain.metadata.finalizers:
        return ()
    finalizers = [each for each in drain.metadata.finalizers if each != FINALIZER]
    stays = drain.status.phase == drains.COMPLETE and drain.metadata.annotations.get(CLEAN_TAINT) != "true"
    undone = () if stays else (*_left_over(facts), *_uncordon(drain))
    return (*undone, PatchObject({"metadata": {"finalizers": finalizers}}))


def _begin(drain: DrainNode, facts: DrainFacts) -> ObjectPlan:
    node = facts.node
    if node is None:
        message = f"there is no node {drain.spec.node_name}"
        return ObjectPlan(replace(drain.status, message=message))
    if WAS_UNSCHEDULABLE not in drain.metadata.annotations:
        was = "true" if node.spec.unschedulable else "false"
        policy = encode(drain.spec.cordon_policy).decode()
        noted = {WAS_UNSCHEDULABLE: was, DRAINED_NODE: drain.spec.node_name, CORDONED_BY: policy}
        return ObjectPlan(drain.status, (PatchObject({"metadata": {"annotations": noted}}),))
    status = replace(drain.status, phase=drains.RUNNING, message="")
    return _entered(drain, status, drains.RUNNING, Cordon(wanted=True))


def _advance(drain: DrainNode, facts: DrainFacts, rules: PodRules, now: datetime) -> ObjectPlan:
    """Running or Complete: every pod one step further."""
    here = {pod.metadata.uid: pod for pod in facts.pods if rules.concerns(pod)}
    known = {entry.uid for entry in drain.status.pod_migrations}
    is_complete = drain.status.phase == drains.COMPLETE
    new = [first_seen(drain, pod, now) for uid, pod in sorted(here.items()) if uid not in known]
    entries: list[PodMigration] = []
    actions: list[Action] = []
    for entry in drain.status.pod_migrations:
        step = PodStep(drain, entry, here.get(entry.uid), facts, rules, now)
        advanced, requested = (entry, ()) if is_complete and entry.uid in here else step.advance()
        entries += [advanced] if advanced is not None else []
        actions += requested
    status = _counted(replace(drain.status, pod_migrations=[*entries, *new]), facts, now)
    events = _pod_events(drain.status.pod_migrations, status.pod_migrations)
    if not is_complete and not any(status.pod_migration_summary[phase] for phase in (*_OPEN, *_STUCK)):
        status = replace(status, phase=drains.COMPLETE)
        note, record = f"node {drain.spec.node_name} is drained", _record(replace(drain, status=status), DONE)
        events = (*events, PlannedEvent("Normal", drains.COMPLETE, note, record))
    return ObjectPlan(status, tuple(actions), events)


def _counted(status: DrainNodeStatus, facts: DrainFacts, now: datetime) -> DrainNodeStatus:
    counts = Counter(entry.phase for entry in status.pod_migrations)
    summary = {phase: counts[phase] for phase in drains.POD_PHASES}
    names = {entry.reservation_name for entry in status.pod_migrations}
    unexpected = sorted(set(facts.reservations) - names)
    late = status.phase == drains.COMPLETE and any(counts[phase] for phase in (*_OPEN, *_STUCK))
    unready = counts[drains.POD_WAITING] + counts[drains.POD_READY]
    blocked = counts[drains.POD_UNAVAILABLE] + counts[drains.POD_UNMIGRATABLE]
    once = _is_true(status, drains.ONCE_AVAILABLE) or unready + blocked == 0
    status = replace(status, pod_migration_summary=summary)
    for type_, is_true, message in (
        (drains.ONCE_AVAILABLE, once, ""),
        (drains.UNMIGRATABLE_POD_EXISTS, bool(counts[drains.POD_UNMIGRATABLE]), _of(status, drains.POD_UNMIGRATABLE)),
        (drains.UNEXPECTED_RESERVATION_EXISTS, bool(unexpected), ", ".join(unexpected)),
        (
            drains.UNAVAILABLE_RESERVATION_EXISTS,
            bool(counts[drains.POD_UNAVAILABLE]),
            _of(status, drains.POD_UNAVAILABLE),
        ),
        (drains.FAILED_MIGRATION_JOB_EXISTS, bool(counts[drains.POD_FAILED]), _of(status, drains.POD_FAILED)),
        (drains.UNEXPECTED_POD_AFTER_COMPLETE_EXISTS, late, _of(status, drains.POD_WAITING) if late else ""),
    ):
        status = _with_condition(status, type_, is_true, message, now)
    return status


def _is_true(status: DrainNodeStatus, type_: str) -> bool:
    return any(each.type == type_ and each.status == "True" for each in status.conditions)


def _of(status: DrainNodeStatus, phase: str) -> str:
    """The first pods of a phase, each with its message."""
    pods = [entry for entry in status.pod_migrations if entry.phase == phase]
    texts = [f"{each.namespace}/{each.pod_name}" + (f": {each.message}" if each.message else "") for each in pods[:3]]
    return "; ".join(texts) + (f"; and {len(pods) - 3} more" if len(pods) > 3 else "")


def _with_condition(status: DrainNodeStatus, type_: str, is_true: bool, message: str, now: datetime) -> DrainNodeStatus:
    old = next((each for each in status.conditions if each.type == type_), None)
    text, reason = ("True", type_) if is_true else ("False", "")
    new = since_transition(DrainNodeCondition(type=type_, status=text, reason=reason, message=message), old, now)
    others = [each for each in status.conditions if each.type != type_]
    return status if new == old else replace(status, conditions=sorted([*others, new], key=lambda each: each.type))


def _pod_events(before: list[PodMigration], after: list[PodMigration]) -> tuple[PlannedEvent, ...]:
    old = {entry.uid: entry.phase for entry in before}
    return tuple(
        PlannedEvent(
            "Warning" if entry.phase in _STUCK else "Normal",
            entry.phase,
            f"pod {entry.namespace}/{entry.pod_name}" + (f": {entry.message}" if entry.message else ""),
        )
        for entry in after
        if old.get(entry.uid) != entry.phase
    )


def _entered(drain: DrainNode, status: DrainNodeStatus, reason: str, *actions: Action) -> ObjectPlan:
    note = f"draining node {drain.spec.node_name} is {status.phase}"
    return ObjectPlan(status, actions, (PlannedEvent("Normal", reason, note),))
