"""What is shown of gangs, and the services that return it: for ``koord explain gang`` which members of a group of gangs
have a node, what the others wait for, and which domain of the network was chosen for the gang, or why none was; and
gangs and the results of job preemption as JSON documents, with the original's fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from koordinator.api.explanations import (
    GangExplanation,
    GangMember,
    GangOfGroup,
    MemberCounts,
    NetworkPlace,
)
from koordinator.api.pod import Pod
from koordinator.api.timestamps import format_time
from koordinator.base.services import Service, ServiceError
from koordinator.model.gang_declaration import ONCE_SATISFIED, STRICT, Declaration
from koordinator.scheduler.engine.framework_hooks import DisruptionUnit, DisruptionUnits, ServiceProvider
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.coscheduling.gang import Gang, Group, Member, MemberState, Wave
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from koordinator.scheduler.plugins.coscheduling.gangs import GangPart
from koordinator.scheduler.plugins.coscheduling.interruption import interruption, next_wave
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import ClusterTopology
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import TopologyPlan
from koordinator.scheduler.plugins.preemption import Plan

_MEMBERS_SHOWN: Final = 20


def explain_gang(
    cache: GangCache,
    gang: Gang,
    node_of: Callable[[Member], str],
    finished: Collection[Pod] = (),
    network: NetworkPlace | None = None,
    unit: DisruptionUnit | None = None,
) -> GangExplanation:
    """Return the explanation. ``node_of`` returns the node on which a member is assumed, or "";
    ``finished`` are pods that were members until they finished; ``network`` explains the placement in the network
    topology, for a gang that requires one; ``unit`` is what leaves when a member is preempted, if not it alone."""
    declaration = gang.declaration
    without_node = [*gang.by_state[MemberState.PENDING].values(), *gang.by_state[MemberState.WAITING].values()]
    return GangExplanation(
        gang=gang.id,
        state=_state(cache, gang) if gang.members or not finished else "has finished",
        declared_by=_declared_by(gang),
        min_member=declaration.min_member if declaration else None,
        mode=declaration.mode if declaration else "",
        match_policy=declaration.match_policy if declaration else "",
        wait_seconds=declaration.wait_seconds if declaration else None,
        problems=list(declaration.problems) if declaration else [],
        members=MemberCounts(**_counts(gang)),
        finished=dict(sorted(Counter(pod.status.phase for pod in finished).items())),
        group=[_gang_of_group(cache, id_) for id_ in declaration.group] if declaration else [],
        waits_for=what_it_waits_for(cache, gang),
        network=network,
        preemption=_preemption(unit) if unit is not None and unit.members else "",
        waiting=[_waiting(cache, member, node_of) for member in without_node[:_MEMBERS_SHOWN]],
    )


def _preemption(unit: DisruptionUnit) -> str:
    on_nodes = len(unit.members)
    if not unit.spare:
        return f"When a member is preempted, all {on_nodes} that are on nodes leave together (gangPolicy Whole)."
    can = "member can leave" if unit.spare == 1 else "members can leave"
    return (
        f"{unit.spare} {can} alone; when more are preempted, all {on_nodes} that are on nodes leave (gangPolicy Whole)."
    )


def _declared_by(gang: Gang) -> str:
    if gang.from_pod_group:
        return "PodGroup"
    return f"the Workload {gang.workload} (scheduling.k8s.io)" if gang.workload else "the annotations of its pods"


def _counts(gang: Gang) -> dict[str, int]:
    return {state.value: len(gang.by_state[state]) for state in MemberState}


def _state(cache: GangCache, gang: Gang) -> str:
    pending, waiting = gang.by_state[MemberState.PENDING], gang.by_state[MemberState.WAITING]
    if not gang.members:
        return "has no pods"
    if not pending and not waiting:
        return "has a node for every member"
    if not gang.is_admitted:
        return "is not tried"
    if cache.wave_in(gang.group) is not None:
        return "is being tried"
    if waiting:
        return "holds nodes and waits for more"
    if gang.by_state[MemberState.BOUND] and any(member.not_bound for member in pending.values()):
        return "is bound in part"
    return "waits"


def _gang_of_group(cache: GangCache, id_: str) -> GangOfGroup:
    gang = cache.gangs.get(id_)
    if gang is None:
        return GangOfGroup(gang=id_)
    declaration = gang.declaration
    needed = declaration.min_member if declaration else None
    return GangOfGroup(gang=id_, exists=True, min_member=needed, counted=gang.collected, **_counts(gang))


def what_it_waits_for(cache: GangCache, gang: Gang) -> list[str]:
    """What the gang waits for, in sentences; empty if every member has a node."""
    if not gang.by_state[MemberState.PENDING] and not gang.by_state[MemberState.WAITING]:
        return []
    declaration, group = gang.declaration, gang.group
    if declaration is None or group is None:
        return [f"Nobody knows how many members must be placed together: {gang.why_undeclared}."]
    if not gang.is_admitted:
        return _what_the_group_lacks(cache, declaration)
    wave = cache.wave_in(group) or next_wave(group)
    return [*_bound_in_part(group), *_missing(group, wave), *_last_failure(cache, group), *_unschedulable(gang)]


def _bound_in_part(group: Group) -> list[str]:
    bound = len(group.members(MemberState.BOUND))
    without = [member for member in group.members(MemberState.PENDING) if member.not_bound]
    if bound and not without and (found := interruption(group)).waiting:
        are = "is" if len(found.bound) == 1 else "are"
        return [
            f"Of the {found.total} that were to be bound together {len(found.bound)} {are} bound; the others are tried "
            "again."
        ]
    if not bound or not without:
        return []
    first = without[0]
    others = f" and {len(without) - 1} more" if len(without) > 1 else ""
    were = "were" if others else "was"
    return [
        f"Of those that were to be bound together {bound} are bound, and {first.key}{others} {were} not, which "
        f"{'are' if others else 'is'} tried again: {first.not_bound}."
    ]


def _missing(group: Group, wave: Wave) -> list[str]:
    found = []
    for gang in group.gangs.values():
        if missing := gang.missing(wave):
            noun = "member" if missing == 1 else "members"
            found.append(f"{missing} more {noun} of {gang.id} must find a node before any member is bound.")
    return found


def _last_failure(cache: GangCache, group: Group) -> list[str]:
    if not group.failure:
        return []
    failed = cache.by_uid.get(group.failed_member)
    about = f"for {failed.key}" if failed is not None else "for one member"
    return [f"The last attempt ended because there was no node {about}: {group.failure}"]


def _unschedulable(gang: Gang) -> list[str]:
    names = sorted(member.key for member in gang.by_state[MemberState.PENDING].values() if not member.is_schedulable)
    if not names:
        return []
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return [f"Members that have scheduling gates or are being deleted, {len(names)}: {shown}."]


def _what_the_group_lacks(cache: GangCache, declaration: Declaration) -> list[str]:
    found = []
    for id_ in declaration.group:
        gang = cache.gangs.get(id_)
        if gang is None:
            found.append(f"Gang {id_} of its group does not exist.")
        elif gang.declaration is None:
            found.append(f"Nobody knows how many members of {id_} must be placed together: {gang.why_undeclared}.")
        elif not gang.is_complete:
            needed = gang.declaration.min_member
            found.append(f"Gang {id_} has {gang.collected} schedulable pods and needs {needed}.")
            found += _unschedulable(gang)
    return found


def _waiting(cache: GangCache, member: Member, node_of: Callable[[Member], str]) -> GangMember:
    return GangMember(pod=member.key, state=member.state.value, node=node_of(member), reason=_reason(cache, member))


def _reason(cache: GangCache, member: Member) -> str:
    gang, group, pod = member.gang, member.gang.group, member.pod
    if member.state is MemberState.WAITING:
        return "has a node and waits for the other members"
    if pod.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if gates := pod.spec.scheduling_gates:
        return f"has scheduling gates: {', '.join(gate.name for gate in gates)}"
    if not gang.is_admitted or group is None:
        return "is not tried: the gang is incomplete"
    if group.failed_member == member.uid:
        return "found no node in the last attempt"
    if member.not_bound:
        return f"was not bound with the others: {member.not_bound}; is tried again"
    if gang.is_released:
        return "is placed by itself: the gang has run once"
    return "waits for the next attempt of the gang"


_SHOWN: Final = 10


def explain_network(topology: ClusterTopology | None, plan: TopologyPlan | None, *, heeded: bool) -> NetworkPlace:
    """Explain a gang with network topology requirements. ``topology`` is None if the scheduler does not watch the
    network; ``heeded``: whether the profile respects such requirements. If no domain has enough slots, ``domainSlots``
    has the number of each."""
    sentences = [*_why_unknown(topology, heeded=heeded)]
    if heeded and plan is not None:
        sentences += _of_plan(plan)
    elif not sentences:
        sentences.append("No attempt has been made to find it yet.")
    domain_slots = plan.domain_slots if heeded and plan is not None and plan.refusal else ()
    return NetworkPlace(
        domain=plan.domain if plan is not None else "",
        wanted=plan.wanted if plan is not None else None,
        sentences=sentences,
        domain_slots=list(domain_slots),
        more_domains=plan.domains - len(domain_slots) if plan is not None and domain_slots else 0,
    )


def _why_unknown(topology: ClusterTopology | None, *, heeded: bool) -> list[str]:
    if not heeded:
        return ["It is not heeded: awareNetworkTopology is false in the CoschedulingArgs of the profile."]
    if topology is None:
        return ["The network is not known: koord-scheduler runs without --enable-network-topology-manager."]
    if topology.problem:
        kept = "" if topology.tree is None else "; the layers that it had before count"
        return [f"The ClusterNetworkTopology default cannot be used: {topology.problem}{kept}."]
    return ["There is no ClusterNetworkTopology named default."] if topology.tree is None else []


def _of_plan(plan: TopologyPlan) -> list[str]:
    demand = plan.demand
    found = [
        f"The number of members in each domain of {layer} must be a multiple of {multiple}."
        for layer, multiple in sorted(demand.multiples.items())
    ]
    if plan.domain:
        counts = sorted(Counter(plan.nodes.values()).items())
        nodes = ", ".join(f"{count} on {node}" for node, count in counts[:_SHOWN])
        more = f" and {len(counts) - _SHOWN} nodes more" if len(counts) > _SHOWN else ""
        where = "the whole network" if plan.domain == f"{plan.layers[0]}/" else plan.domain
        found.append(f"The smallest domain that can take all {plan.wanted} members is {where}: {nodes}{more}.")
    elif demand.gather_in and demand.gather_in not in plan.layers:
        found.append(
            f"All members must be gathered in one domain of {demand.gather_in}, which is not a layer of the network: "
            f"{', '.join(plan.layers)}."
        )
    elif demand.gather_in and demand.gather_in != plan.layers[0]:
        found.append(f"No domain of {demand.gather_in} can take all {plan.wanted} members.")
    else:
        found.append(f"The whole network cannot take all {plan.wanted} members.")
    if plan.left_out:
        found.append(f"Nodes that are in no domain take no members: {'; '.join(plan.left_out[:3])}.")
    return found


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
        units = self.handle.plugin(DisruptionUnits)
        unit = units.unit(gang.id) if units is not None else None
        return explain_gang(self.cache, gang, node_of, self.gangs.finished(gang.id).values(), network, unit)

    def _gang(self, parameters: Mapping[str, str]) -> Gang:
        gang_id = f"{parameters['namespace']}/{parameters['name']}"
        gang = self.cache.gangs.get(gang_id)
        if gang is None:
            raise ServiceError(404, f"cannot find gang {gang_id}")
        return gang
