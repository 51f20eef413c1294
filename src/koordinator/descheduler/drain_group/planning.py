"""Which node of a DrainNodeGroup is drained next, and when the others must stay as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.drain_node import WAIT_FOR_CONFIRM
from koordinator.api.drain_node_group import DrainNodeGroup, TerminationPolicy
from koordinator.api.kinds import DRAIN_NODE_GROUPS, DRAIN_NODES
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_finished
from koordinator.api.reservation import Reservation
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.descheduler.drain.objects import LONGEST_LABEL
from koordinator.descheduler.drain.plan import NODE_GROUP
from koordinator.descheduler.drain_group.plan import GroupFacts, NodeCapacity
from koordinator.descheduler.drain_group.stages import Stage, stage_of
from koordinator.descheduler.requests import amount, requests_of, reserved_requests

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
