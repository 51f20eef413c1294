"""How far each node of a DrainNodeGroup is, which one is drained next, and when the others must stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api import drain_node as drains
from koordinator.api import drain_node_group as groups
from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.drain_node import WAIT_FOR_CONFIRM, DrainNode, DrainNodeCondition
from koordinator.api.drain_node_group import DrainNodeGroup, DrainNodeGroupStatus, TerminationPolicy
from koordinator.api.kinds import DRAIN_NODE_GROUPS, DRAIN_NODES
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_finished
from koordinator.api.reservation import Reservation
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.descheduler.drain.objects import LONGEST_LABEL
from koordinator.descheduler.drain.plan import DOMAIN, NODE_GROUP
from koordinator.descheduler.migration.job_status import since_transition
from koordinator.descheduler.plan_controller import CreateObject, DeleteObject, PatchObject, PatchOther
from koordinator.descheduler.requests import amount, requests_of, reserved_requests

ABORT: Final = f"{DOMAIN}/abort"
"""Label of a DrainNodeGroup: all its DrainNodes are aborted where it is "true"."""
Amounts = Mapping[str, int]
"""Resource -> milli-CPU, or bytes."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What a node has for pods of the resources that a group looks at, and how much of that is free."""

    allocatable: Amounts
    free: Amounts

    @property
    def score(self) -> float:
        """The mean percentage that is free, each rounded down; 0 for a node that has nothing."""
        shares = [100 * self.free[name] // amount for name, amount in self.allocatable.items() if amount > 0]
        return sum(shares) / len(shares) if shares else 0.0


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The cluster around one DrainNodeGroup."""

    nodes: Mapping[str, Node]
    """All nodes, by name."""
    drains: Mapping[str, DrainNode] = field(default_factory=dict)
    """The DrainNodes of the group, by the name of their node."""
    drained_elsewhere: frozenset[str] = frozenset()
    """Nodes with a DrainNode of another owner that has not been aborted."""
    capacities: Mapping[str, NodeCapacity] = field(default_factory=dict)
    """Of all nodes, by name, where another one is to be planned."""
    taken_names: frozenset[str] = frozenset()
    """The names of the DrainNodes of others."""
    waits_for: str = ""
    """An older DrainNodeGroup that has not finished."""


GroupAction = PatchObject | CreateObject | PatchOther | DeleteObject


_NAMED: Final = 3
"""Nodes that a message names."""


class Stage(StrEnum):
    """Of one node; each but the first has a count in the status of the group."""

    PLANNED = "planned"
    """Places are looked for, or what was reserved in vain is given back."""
    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


ONCE_AVAILABLE: Final = frozenset({Stage.AVAILABLE, Stage.RUNNING, Stage.SUCCEEDED, Stage.FAILED})
"""Stages that a node comes to only when places are reserved for all its pods."""


def stage_of(drain: DrainNode) -> Stage:
    """A DrainNode that is aborted before anybody has confirmed it was unavailable; one that is aborted later has
    failed."""
    state, phase = drain.spec.confirm_state, drain.status.phase
    if phase == drains.COMPLETE:
        return Stage.SUCCEEDED
    if phase == drains.ABORTED:
        return Stage.UNAVAILABLE if state in (drains.REJECTED, drains.WAIT_FOR_CONFIRM) else Stage.FAILED
    if state in (drains.CONFIRMED, drains.CONFIRM_ABORTED):
        return Stage.RUNNING
    if state == drains.WAIT_FOR_CONFIRM and _is_true(drain, drains.ONCE_AVAILABLE):
        return Stage.AVAILABLE
    return Stage.PLANNED


def obstacle(drain: DrainNode) -> str:
    """Why no place is found for all pods of a node; empty while that is not known."""
    for type_ in (drains.UNMIGRATABLE_POD_EXISTS, drains.UNAVAILABLE_RESERVATION_EXISTS):
        for condition in drain.status.conditions:
            if condition.type == type_ and condition.status == "True":
                return condition.message or type_
    return ""


def counted(
    status: DrainNodeGroupStatus, owned: Iterable[DrainNode], total: int, now: datetime
) -> DrainNodeGroupStatus:
    """The status with the counts and the conditions of now. ``total`` is the number of nodes of the group."""
    stages = sorted((drain.spec.node_name, stage_of(drain), obstacle(drain)) for drain in owned)
    counts = Counter(stage for _, stage, _ in stages)
    status = replace(
        status,
        total_count=total,
        unavailable_count=counts[Stage.UNAVAILABLE],
        available_count=counts[Stage.AVAILABLE],
        running_count=counts[Stage.RUNNING],
        succeeded_count=counts[Stage.SUCCEEDED],
        failed_count=counts[Stage.FAILED],
    )
    conditions = [
        _condition(status, type_, [_with_reason(node, why) for node, each, why in stages if each is stage], now)
        for type_, stage in (
            (groups.FAILED_NODE_EXISTS, Stage.FAILED),
            (groups.UNAVAILABLE_NODE_EXISTS, Stage.UNAVAILABLE),
        )
    ]
    return replace(status, conditions=conditions)


def _with_reason(node: str, why: str) -> str:
    return f"{node} ({why})" if why else node


def _condition(status: DrainNodeGroupStatus, type_: str, nodes: list[str], now: datetime) -> DrainNodeCondition:
    old = next((each for each in status.conditions if each.type == type_), None)
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    text, reason = ("True", type_) if nodes else ("False", "")
    new = DrainNodeCondition(type=type_, status=text, reason=reason, message=", ".join(nodes[:_NAMED]) + more)
    return since_transition(new, old, now)


def _is_true(drain: DrainNode, type_: str) -> bool:
    return any(each.type == type_ and each.status == "True" for each in drain.status.conditions)


RESOURCES: Final = (CPU, MEMORY)
"""What nodes are compared by."""
_HASH: Final = 8
"""Hexadecimal digits at the end of a name that would be too long."""
_GIVEN_BACK: Final = (Stage.UNAVAILABLE, Stage.FAILED)
"""Stages of nodes that take new pods again."""
_NO_CAPACITY: Final = NodeCapacity({}, {})


def capacity_of(node: Node, pods: Sequence[Pod], reservations: Sequence[Reservation]) -> NodeCapacity:
    """``reservations`` are those on the node: what is reserved and not used yet is not free."""
    allocatable = {name: amount(name, node.status.allocatable[name]) for name in RESOURCES if _has(node, name)}
    requested = [requests_of(pod) for pod in pods if not is_finished(pod)]
    reserved = map(reserved_requests, reservations)
    taken = [*requested, *reserved]
    free = {name: most - sum(each.get(name, 0) for each in taken) for name, most in allocatable.items()}
    return NodeCapacity(allocatable, free)


def next_node(policy: TerminationPolicy, members: Collection[str], facts: GroupFacts) -> tuple[str, str]:
    """The node that is planned next, or "" and why there is none."""
    stages = {node: stage_of(drain) for node, drain in facts.drains.items()}
    planned = [node for node, stage in stages.items() if stage not in _GIVEN_BACK]
    if policy.max_node_count is not None and len(planned) >= policy.max_node_count:
        return "", "maxNodeCount is reached"
    candidates = [node for node in members if node not in stages and node not in facts.drained_elsewhere]
    if not candidates:
        return "", "no further node can be planned"
    capacities = facts.capacities
    chosen = min(candidates, key=lambda node: (-capacities.get(node, _NO_CAPACITY).score, node))
    emptied = {chosen, *planned, *facts.drained_elsewhere}
    left = [node for node in members if node not in emptied and not facts.nodes[node].spec.unschedulable]
    scarce = _scarce(policy.percentage_of_resource_reserved, members, left, capacities)
    return ("", f"a further node would leave less than {scarce} free") if scarce else (chosen, "")


def _scarce(
    percentage: int | None, members: Collection[str], left: Collection[str], capacities: Mapping[str, NodeCapacity]
) -> str:
    """The share of the group's capacity that is not free on the nodes that are left; empty if all of it is."""
    for name in RESOURCES if percentage is not None else ():
        total = sum(capacities.get(node, _NO_CAPACITY).allocatable.get(name, 0) for node in members)
        free = sum(max(0, capacities.get(node, _NO_CAPACITY).free.get(name, 0)) for node in left)
        if free * 100 < (percentage or 0) * total:
            return f"{percentage} % of {name}"
    return ""


def drain_node_for(group: DrainNodeGroup, node: str) -> Document:
    """The DrainNode by which the group drains a node, once it is confirmed."""
    owner = {
        "apiVersion": DRAIN_NODE_GROUPS.api_version,
        "kind": DRAIN_NODE_GROUPS.name,
        "name": group.metadata.name,
        "uid": group.metadata.uid,
        "controller": True,
    }
    spec: dict[str, Any] = {"nodeName": node, "confirmState": WAIT_FOR_CONFIRM}
    return {
        "apiVersion": DRAIN_NODES.api_version,
        "kind": DRAIN_NODES.name,
        "metadata": {
            "name": drain_node_name(group.metadata.name, node),
            "labels": {NODE_GROUP: group.metadata.name},
            "ownerReferences": [owner],
        },
        "spec": spec | {"cordonPolicy": to_document(group.spec.cordon_policy)},
    }


def drain_node_name(group: str, node: str) -> str:
    """``group-node``; what belongs to a DrainNode is labelled with its name, so it must not be longer than a label."""
    name = f"{group}-{node}"
    if len(name) <= LONGEST_LABEL:
        return name
    return f"{name[: LONGEST_LABEL - _HASH - 1].rstrip('-.')}-{sha256(name.encode()).hexdigest()[:_HASH]}"


def _has(node: Node, resource: str) -> bool:
    return resource in node.status.allocatable
