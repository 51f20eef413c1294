"""How far each node of a DrainNodeGroup has come, by its DrainNode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from koordinator.api import drain_node as drains
from koordinator.api import drain_node_group as groups
from koordinator.api.drain_node import DrainNode, DrainNodeCondition
from koordinator.api.drain_node_group import DrainNodeGroupStatus
from koordinator.descheduler.migration.job_status import since_transition

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
