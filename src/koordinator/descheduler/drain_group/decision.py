"""What is to be done about one DrainNodeGroup: a pure function of it, the cluster around it and the time."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api import drain_node as drains
from koordinator.api import drain_node_group as groups
from koordinator.api.drain_node import DrainNode
from koordinator.api.drain_node_group import DrainNodeGroup, DrainNodeGroupStatus
from koordinator.api.kinds import DRAIN_NODES, NODES
from koordinator.descheduler.drain.objects import LONGEST_LABEL
from koordinator.descheduler.drain.plan import CLEAN_TAINT, FINALIZER, NODE_GROUP
from koordinator.descheduler.drain_group.planning import (
    ABORT,
    ONCE_AVAILABLE,
    GroupAction,
    GroupFacts,
    Stage,
    counted,
    drain_node_for,
    drain_node_name,
    next_node,
    obstacle,
    stage_of,
)
from koordinator.descheduler.plan_controller import (
    CreateObject,
    DeleteObject,
    ObjectPlan,
    PatchObject,
    PatchOther,
    PlannedEvent,
    for_version,
)
from koordinator.model.label_selector import SelectorError, compile_selector

_WARNED_OF: Final = (groups.FAILED, groups.ABORTED)


def decide(group: DrainNodeGroup, facts: GroupFacts, now: datetime) -> ObjectPlan:
    """The next plan for ``group``. ``now`` is the wall time."""
    status = group.status
    if group.metadata.deletion_timestamp is not None:
        return ObjectPlan(status, _finalize(group, facts))
    if status.phase in groups.FINISHED:
        return ObjectPlan(status, (*_without_labels(group, facts), *_taken_back(group, facts)))
    reason = _why_to_abort(group, now)
    if reason:
        return _ended(group, facts, status, groups.ABORTED, reason, *_aborted(facts.drains.values()))
    if FINALIZER not in group.metadata.finalizers:
        finalizers = [*group.metadata.finalizers, FINALIZER]
        return ObjectPlan(status, (PatchObject({"metadata": {"finalizers": finalizers}}),))
    if not status.phase:
        return _entered(group, status, groups.PENDING, "")
    try:
        selected = compile_selector(group.spec.node_selector)
    except SelectorError as error:
        return _ended(group, facts, status, groups.FAILED, f"spec.nodeSelector: {error}")
    members = {name for name, node in facts.nodes.items() if selected.matches(node.metadata.labels)}
    if status.phase == groups.PENDING:
        return _begin(group, facts, members, now)
    status = counted(status, facts.drains.values(), len(members), now)
    if status.phase == groups.PLANNING:
        return _plan(group, facts, members, status)
    return _drain(group, facts, status)


def _why_to_abort(group: DrainNodeGroup, now: datetime) -> str:
    if group.metadata.labels.get(ABORT) == "true":
        return f"the label {ABORT} is true"
    created = group.metadata.creation_timestamp
    is_over = group.spec.ttl and created is not None and now >= created + group.spec.ttl
    return "ttl has passed" if is_over else ""


def _begin(group: DrainNodeGroup, facts: GroupFacts, members: Collection[str], now: datetime) -> ObjectPlan:
    if facts.waits_for:
        return ObjectPlan(replace(group.status, message=f"waits for DrainNodeGroup {facts.waits_for}"))
    if len(group.metadata.name) > LONGEST_LABEL:
        reason = f"the name of a DrainNodeGroup is a label of its nodes, and has at most {LONGEST_LABEL} characters"
        return _ended(group, facts, group.status, groups.FAILED, reason)
    if not members:
        return _ended(group, facts, group.status, groups.FAILED, "spec.nodeSelector matches no node")
    status = counted(group.status, facts.drains.values(), len(members), now)
    return _entered(group, status, groups.PLANNING, "", *_labelled(group, facts, members))


def _labelled(group: DrainNodeGroup, facts: GroupFacts, members: Collection[str]) -> tuple[GroupAction, ...]:
    """All nodes of the group have its label, and no other node has one."""
    name = group.metadata.name
    found = {node: each.metadata.labels.get(NODE_GROUP) for node, each in sorted(facts.nodes.items())}
    wanted = {node: name if node in members else None for node in found}
    return tuple(_label(node, wanted[node]) for node, label in found.items() if label != wanted[node])


def _plan(
    group: DrainNodeGroup, facts: GroupFacts, members: Collection[str], status: DrainNodeGroupStatus
) -> ObjectPlan:
    """One node after the other: what is reserved for the pods of one is not free for those of the next."""
    labels = _labelled(group, facts, members)
    planned = [drain for drain in facts.drains.values() if stage_of(drain) is Stage.PLANNED]
    if planned:
        names = ", ".join(drain.spec.node_name for drain in planned)
        rejected = tuple(
            _with_state(drain, drains.REJECTED)
            for drain in planned
            if drain.spec.confirm_state == drains.WAIT_FOR_CONFIRM
            and (obstacle(drain) or drain.spec.node_name not in facts.nodes)
        )
        return ObjectPlan(replace(status, message=f"looks for places for the pods of {names}"), (*labels, *rejected))
    node, why_not = next_node(group.spec.termination_policy, members, facts)
    name = drain_node_name(group.metadata.name, node)
    if node and name in facts.taken_names:
        return ObjectPlan(replace(status, message=f"waits until DrainNode {name}, which is another's, is gone"), labels)
    if node:
        created = CreateObject(DRAIN_NODES, drain_node_for(group, node))
        return ObjectPlan(replace(status, message=f"looks for places for the pods of {node}"), (*labels, created))
    if any(stage_of(drain) in ONCE_AVAILABLE for drain in facts.drains.values()):
        return _entered(group, status, groups.WAITING, why_not, *labels)
    return _ended(group, facts, status, groups.FAILED, f"no node can be drained: {why_not}")


def _drain(group: DrainNodeGroup, facts: GroupFacts, status: DrainNodeGroupStatus) -> ObjectPlan:
    """Waiting or Running."""
    confirmed = _confirmed(group, facts)
    if confirmed or status.running_count:
        if status.phase == groups.RUNNING:
            return ObjectPlan(status, confirmed)
        return _entered(group, status, groups.RUNNING, "", *confirmed)
    if status.available_count:
        policy = group.spec.execution_policy
        why = "spec.executionPolicy is paused" if policy.paused else f"partition is {policy.partition}"
        if status.phase == groups.WAITING:
            return ObjectPlan(replace(status, message=why))
        return _entered(group, status, groups.WAITING, why)
    if status.succeeded_count:
        return _ended(
            group, facts, status, groups.SUCCEEDED, f"drained {status.succeeded_count} of {status.total_count}"
        )
    return _ended(group, facts, status, groups.FAILED, "no drain has succeeded")


def _confirmed(group: DrainNodeGroup, facts: GroupFacts) -> tuple[GroupAction, ...]:
    """Of the nodes that have been available, as many as the group may drain, the first by name."""
    policy = group.spec.execution_policy
    if policy.paused:
        return ()
    once = [drain for _, drain in sorted(facts.drains.items()) if stage_of(drain) in ONCE_AVAILABLE]
    return tuple(
        _with_state(drain, drains.CONFIRMED) for drain in once[: policy.partition] if stage_of(drain) is Stage.AVAILABLE
    )


def _with_state(drain: DrainNode, state: str) -> GroupAction:
    return _changed(drain, {"spec": {"confirmState": state}})


def _aborted(owned: Collection[DrainNode]) -> tuple[GroupAction, ...]:
    return tuple(
        _with_state(drain, drains.CONFIRM_ABORTED)
        for drain in owned
        if drain.status.phase != drains.ABORTED and drain.spec.confirm_state != drains.CONFIRM_ABORTED
    )


def _taken_back(group: DrainNodeGroup, facts: GroupFacts) -> tuple[GroupAction, ...]:
    """Of a group that has finished: all of one that was aborted; else what will not be confirmed any more, and drained
    nodes if the spec says so."""
    owned = facts.drains.values()
    if group.status.phase == groups.ABORTED:
        return _aborted(owned)
    pending = [drain for drain in owned if stage_of(drain) in (Stage.PLANNED, Stage.AVAILABLE)]
    rejected = [_with_state(drain, drains.REJECTED) for drain in pending if drain.spec.confirm_state != drains.REJECTED]
    return (*rejected, *(_aborted(_complete(facts)) if _is_to_be_cleaned(group) else ()))


def _is_to_be_cleaned(group: DrainNodeGroup) -> bool:
    return group.metadata.labels.get(CLEAN_TAINT) == "true"


def _complete(facts: GroupFacts) -> list[DrainNode]:
    return [drain for drain in facts.drains.values() if drain.status.phase == drains.COMPLETE]


def _without_labels(group: DrainNodeGroup, facts: GroupFacts) -> tuple[GroupAction, ...]:
    name = group.metadata.name
    return tuple(
        _label(node, None) for node, each in facts.nodes.items() if each.metadata.labels.get(NODE_GROUP) == name
    )


def _finalize(group: DrainNodeGroup, facts: GroupFacts) -> tuple[GroupAction, ...]:
    """Before a group goes: so do its DrainNodes, which undo by themselves what they have not completed. They do without
    a garbage collector, which a cluster may lack."""
    if FINALIZER not in group.metadata.finalizers:
        return ()
    finalizers = [each for each in group.metadata.finalizers if each != FINALIZER]
    noted: dict[str, Any] = {"metadata": {"annotations": {CLEAN_TAINT: "true"}}}
    cleaned = [_changed(drain, noted) for drain in _complete(facts)] if _is_to_be_cleaned(group) else []
    deleted = (DeleteObject(DRAIN_NODES, drain) for drain in facts.drains.values())
    return (*_without_labels(group, facts), *cleaned, *deleted, PatchObject({"metadata": {"finalizers": finalizers}}))


def _ended(
    group: DrainNodeGroup,
    facts: GroupFacts,
    status: DrainNodeGroupStatus,
    phase: str,
    message: str,
    *actions: GroupAction,
) -> ObjectPlan:
    return _entered(group, status, phase, message, *actions, *_without_labels(group, facts))


def _entered(
    group: DrainNodeGroup, status: DrainNodeGroupStatus, phase: str, message: str, *actions: GroupAction
) -> ObjectPlan:
    note = f"DrainNodeGroup {group.metadata.name} is {phase}" + (f": {message}" if message else "")
    event = PlannedEvent("Warning" if phase in _WARNED_OF else "Normal", phase, note)
    return ObjectPlan(replace(status, phase=phase, message=message), actions, (event,))


def _label(node: str, group: str | None) -> GroupAction:
    """Set the label of nodes in a group to this name; None removes it."""
    what = f"take node {node} into the group" if group else f"let node {node} leave the group"
    return PatchOther(what, NODES, node, {"metadata": {"labels": {NODE_GROUP: group}}})


def _changed(drain: DrainNode, patch: dict[str, Any]) -> GroupAction:
    name = drain.metadata.name
    return PatchOther(f"change DrainNode {name}", DRAIN_NODES, name, for_version(drain, patch))
