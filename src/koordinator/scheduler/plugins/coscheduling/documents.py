"""Gangs and the results of job preemption as JSON documents, with the original's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.api.timestamps import format_time
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.coscheduling.gang import Gang, Member, MemberState
from koordinator.scheduler.plugins.coscheduling.job_preemption import JobPlan


def gang_document(gang: Gang) -> dict[str, Any]:
    """The gang in the original's fields, plus ``problems``: the invalid values of its declaration."""
    declaration, group = gang.declaration, gang.group
    waiting = {**gang.by_state[MemberState.WAITING], **gang.by_state[MemberState.BINDING]}
    return {
        "name": gang.id,
        "waitTime": int(declaration.wait_seconds * 10**9) if declaration else 0,
        "createTime": format_time(gang.created_at) if gang.created_at else None,
        "mode": declaration.mode if declaration else "",
        "gangMatchPolicy": declaration.match_policy if declaration else "",
        "minRequiredNumber": declaration.min_member if declaration else 0,
        "totalChildrenNum": declaration.total if declaration else 0,
        "gangGroup": list(declaration.group) if declaration else [],
        "children": _keys(gang.members),
        "pendingChildren": _keys(gang.by_state[MemberState.PENDING]),
        "waitingForBindChildren": _keys(waiting),
        "boundChildren": _keys(gang.by_state[MemberState.BOUND]),
        "onceResourceSatisfied": group is not None and group.once_satisfied,
        "gangGroupInfo": {"gangGroupId": group.id, "failure": group.failure} if group is not None else None,
        "gangFrom": "GangFromPodGroupCrd" if gang.from_pod_group else "GangFromPodAnnotation",
        "hasGangInit": declaration is not None,
        "problems": list(declaration.problems) if declaration else [gang.why_undeclared],
    }


def _keys(members: Mapping[str, Member]) -> list[str]:
    return sorted(member.key for member in members.values())


def preemption_document(trigger: PodInfo, job: str, plan: JobPlan) -> dict[str, Any]:
    """The result of a job preemption, in the fields of the original's JobPreemptionState without the durations."""
    result = plan.result
    nominated = {pod.key: node_name for pod, node_name in result.nominations if node_name}
    if result.nominated_node:
        nominated[trigger.key] = result.nominated_node
    victims: dict[str, list[dict[str, str]]] = {}
    for victim in sorted(result.victims, key=lambda pod: pod.key):
        metadata = victim.pod.metadata
        names = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        victims.setdefault(victim.pod.spec.node_name, []).append(names)
    document: dict[str, Any] = {"TriggerPodKey": trigger.key, "reason": plan.outcome, "message": plan.message}
    if job:
        document["preemptorKey"] = job
    if nominated:
        document["podToNominatedNode"] = dict(sorted(nominated.items()))
    if victims:
        document["victims"] = [{"nodeName": node, "possibleVictims": victims[node]} for node in sorted(victims)]
    return document
