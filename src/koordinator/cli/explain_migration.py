"""What a PodMigrationJob has done and what it waits for: out of the job, its Reservation and the pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from koordinator.api import annotations as annotation_keys
from koordinator.api import pod_migration_job as jobs
from koordinator.api.explanations import MigrationExplanation, MigrationOfMember, MigrationStep
from koordinator.api.labels import GANG_MIGRATION
from koordinator.cli.explain_terminal import escape, print_list, print_table, print_text

Document = Mapping[str, Any]

_GANG_JOBS: Final = f"the jobs that have the same label {GANG_MIGRATION} get as far"
_AFTER: Final[Mapping[str, str]] = {
    jobs.TIMEOUT: "create another job, with a longer spec.ttl if the pod may still be moved",
    jobs.FORBIDDEN_MIGRATE_POD: "the log of koord-descheduler names the rule; the annotation "
    f"{annotation_keys.EVICTABLE} of the pod overrides most of them",
    jobs.UNSCHEDULABLE: "koord explain reservation NAME says which nodes were looked at",
    jobs.MISSING_POD: "nothing needs to be done: the pod is gone",
    jobs.GANG_NOT_MOVED: "the message names the job whose pod could not be moved: explain that one; or it says how "
    "many jobs are left, or which pod has joined the gang: create another job",
    jobs.FAILED_CREATE_RESERVATION: "use spec.mode EvictDirectly for a pod that no controller would replace",
}
"""By the reason of a job that has failed, what its author may do."""


def migration_document(
    job: Document, reservation: Document | None, pod: Document | None, gang: Sequence[Document] = ()
) -> MigrationExplanation:
    """The explanation. ``reservation`` and ``pod`` are None where there is none (any more); ``gang`` are the other
    jobs that move the gang of the pod."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    reference = spec.get("podRef") or {}
    sentence, following = _where(job, reservation, pod)
    return MigrationExplanation(
        migration=job["metadata"]["name"],
        phase=status.get("phase") or jobs.PENDING,
        sentence=sentence,
        next=following,
        pod=f"{reference.get('namespace', '')}/{reference.get('name', '')}",
        mode=spec.get("mode") or "",
        ttl=spec.get("ttl") or "",
        created=job["metadata"].get("creationTimestamp") or "",
        node=status.get("nodeName") or "",
        reservation=_reservation(reservation),
        steps=[_step(each) for each in status.get("conditions") or ()],
        gang=[_of_member(each) for each in gang],
    )


def _of_member(job: Document) -> MigrationOfMember:
    reference, status = (job.get("spec") or {}).get("podRef") or {}, job.get("status") or {}
    return MigrationOfMember(
        migration=job["metadata"]["name"],
        pod=f"{reference.get('namespace', '')}/{reference.get('name', '')}",
        phase=status.get("phase") or jobs.PENDING,
        step=status.get("reason") or status.get("status") or "",
    )


def _step(condition: Document) -> MigrationStep:
    return MigrationStep(
        step=condition.get("type", ""),
        done=condition.get("status") == "True",
        time=condition.get("lastTransitionTime") or "",
        reason=condition.get("reason") or "",
        message=condition.get("message") or "",
    )


def _where(job: Document, reservation: Document | None, pod: Document | None) -> tuple[str, str]:
    """Where the job is, and what has to happen next; the second is empty when nothing has."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    phase = status.get("phase") or jobs.PENDING
    if phase == jobs.SUCCEEDED:
        return "the pod was moved" if status.get("podRef") else "the pod was evicted", ""
    if phase in (jobs.FAILED, jobs.ABORTED):
        why = status.get("message") or status.get("reason") or "no reason is given"
        return f"it has ended without success: {why}", _AFTER.get(status.get("reason") or "", "")
    if spec.get("paused"):
        return "it is paused", "set spec.paused to false"
    if phase == jobs.PENDING and not _has_passed(job):
        return (
            "it waits for arbitration: less important pods go first, within limits for nodes, namespaces and workloads",
            "other migrations on the node, in the namespace or of the workload end; the log of koord-descheduler says "
            "with -v=4 which limit it is",
        )
    return _underway(status.get("conditions") or (), reservation, pod)


def _underway(conditions: Sequence[Document], reservation: Document | None, pod: Document | None) -> tuple[str, str]:
    done = {each.get("type") for each in conditions if each.get("status") == "True"}
    said = {each.get("type"): each for each in conditions}
    if jobs.BOUND_POD_READY in said and jobs.BOUND_POD_READY not in done:
        return "the replacement is on its node and not ready yet", "the replacement becomes ready"
    if jobs.EVICTION in said and said[jobs.EVICTION].get("reason") != jobs.EVICTING:
        return "the pod is evicted, and its replacement has not taken the Reservation yet", (
            "the controller of the pod makes a replacement, and koord-scheduler places it"
        )
    if jobs.EVICTION in said:
        if pod is not None and (pod.get("metadata") or {}).get("deletionTimestamp"):
            return "the pod is terminating", "its grace period ends"
        why = said[jobs.EVICTION].get("message") or "it is not gone yet"
        return f"the pod is being evicted: {why}", "a PodDisruptionBudget that refuses has to allow it"
    if jobs.GANG_READY in said and jobs.GANG_READY not in done:
        why = said[jobs.GANG_READY].get("message") or "the other members are not ready"
        return f"the gang of the pod moves whole or not at all: {why}", f"{_GANG_JOBS}: koord explain migration NAME"
    if jobs.RESERVATION_SCHEDULED in done:
        return "another node has room reserved for it", "koord-descheduler evicts the pod"
    if reservation is not None:
        why = said.get(jobs.RESERVATION_SCHEDULED, {}).get("message") or "koord-scheduler has not placed it yet"
        name = reservation["metadata"]["name"]
        return f"its Reservation waits for a node: {why}", f"koord explain reservation {name} says what is missing"
    return "it has just begun", "koord-descheduler reserves room on another node, or evicts the pod"


def _has_passed(job: Document) -> bool:
    annotations = job["metadata"].get("annotations") or {}
    return annotations.get(annotation_keys.PASSED_ARBITRATION) == "true"


def _reservation(found: Document | None) -> dict[str, str]:
    if found is None:
        return {}
    status = found.get("status") or {}
    return {
        "name": found["metadata"]["name"],
        "phase": status.get("phase") or "Pending",
        "node": status.get("nodeName") or "",
    }


def print_migration(document: MigrationExplanation, console: Console) -> None:
    """Write it, the result first."""
    name, phase = escape(document.migration), escape(document.phase)
    print_text(console, f"[bold]{name}[/bold]  {phase}: {escape(document.sentence)}")
    if document.next:
        print_text(console, escape(f"Next: {document.next}"), indent=2)
    facts = [f"pod {document.pod}"]
    facts += [f"mode {document.mode}"] if document.mode else []
    facts += [f"created {document.created}, has {document.ttl}"] if document.ttl else []
    if reservation := document.reservation:
        where = f" on {reservation['node']}" if reservation["node"] else ""
        facts.append(f"Reservation {reservation['name']}: {reservation['phase']}{where}")
    print_list(console, "The job:", facts)
    if document.gang:
        others = Table("job", "pod", "phase", "step")
        for each in document.gang:
            others.add_row(*map(escape, (each.migration, each.pod, each.phase, each.step)))
        print_table(console, "The other jobs that move its gang, whole or not at all", others)
    if document.steps:
        table = Table("step", "done", "since", "reason", "message")
        for step in document.steps:
            done = "yes" if step.done else "no"
            table.add_row(escape(step.step), done, *map(escape, (step.time, step.reason, step.message)))
        print_table(console, "Its steps", table)
