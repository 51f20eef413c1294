"""Gangs and the results of job preemption as JSON documents, with the original's fields, and the services that return
them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from koordinator.api.explanations import NetworkPlace
from koordinator.api.timestamps import format_time
from koordinator.base.services import Service, ServiceError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.coscheduling.declaration import ONCE_SATISFIED, STRICT
from koordinator.scheduler.plugins.coscheduling.explanation import explain_gang, explain_network
from koordinator.scheduler.plugins.coscheduling.gang import Gang, Group, Member, MemberState
from koordinator.scheduler.plugins.coscheduling.gangs import GangPart
from koordinator.scheduler.plugins.preemption import Plan
from koordinator.scheduler.services.provider import ServiceProvider

_NEVER: Final = "0001-01-01T00:00:00Z"
"""Go's time of nothing."""
Keys = dict[str, dict[str, Any]]
"""A set of names as Go writes it."""


def gang_document(gang: Gang) -> dict[str, Any]:
    """The gang in the original's fields, plus ``problems``: the invalid values of its declaration."""
    declaration, group = gang.declaration, gang.group
    waiting = [*gang.by_state[MemberState.WAITING].values(), *gang.by_state[MemberState.BINDING].values()]
    return {
        "name": gang.id,
        "waitTime": int(declaration.wait_seconds * 10**9) if declaration else 0,
        "createTime": format_time(gang.created_at) if gang.created_at else _NEVER,
        "mode": declaration.mode if declaration else STRICT,
        "gangMatchPolicy": declaration.match_policy if declaration else ONCE_SATISFIED,
        "minRequiredNumber": declaration.min_member if declaration else 0,
        "totalChildrenNum": declaration.total if declaration else 0,
        "gangGroup": list(declaration.group) if declaration else [gang.id],
        "children": _keys(gang.members.values()),
        "pendingChildren": _keys(gang.by_state[MemberState.PENDING].values()),
        "waitingForBindChildren": _keys(waiting),
        "boundChildren": _keys(gang.by_state[MemberState.BOUND].values()),
        "onceResourceSatisfied": group is not None and group.once_satisfied,
        "gangGroupInfo": _group_document(group),
        "gangFrom": "GangFromPodGroupCrd" if gang.from_pod_group else "GangFromPodAnnotation",
        "hasGangInit": declaration is not None,
        "problems": list(declaration.problems) if declaration else [gang.why_undeclared],
    }


def _group_document(group: Group | None) -> dict[str, Any]:
    """The group in the original's fields, plus ``failure``. Its fields have no names of their own in JSON there."""
    if group is None:
        group = Group(())
    pending, binding = group.members(MemberState.PENDING), group.members(MemberState.BINDING)
    failed = [member for member in pending if member.uid == group.failed_member]
    return {
        "Initialized": bool(group.ids),
        "GangGroupId": group.id,
        "GangGroup": list(group.ids) or None,
        "OnceResourceSatisfied": group.once_satisfied,
        "WaitingGangIDs": {id_: {} for id_ in group.ids if group.members(MemberState.WAITING)},
        "RepresentativePodKey": next((each.key for each in (*failed, *pending) if each.gang.is_admitted), ""),
        "BindingMemberPods": _keys(binding) or None,
        "failure": group.failure,
    }


def _keys(members: Iterable[Member]) -> Keys:
    return {key: {} for key in sorted(member.key for member in members)}


def preemption_document(trigger: PodInfo, job: str, plan: Plan) -> dict[str, Any]:
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


class GangServices(GangPart, ServiceProvider):
    """Serves the gangs as documents, and the explanation of one for ``koord explain gang``."""

    def services(self) -> Mapping[str, Service]:
        return {
            "/gang/:namespace/:name/explanation": self._explanation,
            "/gang/:namespace/:name": lambda parameters: gang_document(self._gang(parameters)),
            "/gangs": lambda parameters: {id_: gang_document(gang) for id_, gang in self.cache.gangs.items()},
        }

    def _explanation(self, parameters: Mapping[str, str]) -> Any:
        def node_of(member: Member) -> str:
            waiting = self.view.waiting.get(member.uid)
            return waiting.node_name if waiting is not None else ""

        gang = self._gang(parameters)
        network: NetworkPlace | None = None
        if gang.declaration is not None and gang.declaration.network_topology is not None:
            plan = gang.group.plan if gang.group is not None else None
            network = explain_network(self.gangs.topology, plan, heeded=self.args.aware_network_topology)
        return explain_gang(self.cache, gang, node_of, self.gangs.finished.of(gang.id).values(), network)

    def _gang(self, parameters: Mapping[str, str]) -> Gang:
        gang_id = f"{parameters['namespace']}/{parameters['name']}"
        gang = self.cache.gangs.get(gang_id)
        if gang is None:
            raise ServiceError(404, f"cannot find gang {gang_id}")
        return gang
