"""The node condition that says that a node is abnormal, and why."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from koordinator.api.node import Node, NodeCondition
from koordinator.api.timestamps import format_time
from koordinator.model.overcommit.abnormality import Finding, NodeHealth

CONDITION_TYPE: Final = "ColocationAbnormal"
SOUND: Final = "ReadingsAreSound"
_SOUND_MESSAGE: Final = "the node's agent reports, and what it reports makes sense"


def condition_of(health: NodeHealth) -> NodeCondition:
    """The condition, as of when it last changed."""
    first = health.findings[0] if health.findings else None
    return NodeCondition(
        type=CONDITION_TYPE,
        status="True" if first else "False",
        reason=first.code if first else SOUND,
        message="; ".join(each.message for each in health.findings) if first else _SOUND_MESSAGE,
        last_transition_time=health.changed_at,
    )


def remembered(node: Node, now: datetime) -> NodeHealth:
    """Where a process that knows nothing of a node yet starts: an abnormal one is so until it has been well again."""
    stored = _stored(node)
    if stored is None:
        return NodeHealth(first_seen=now, changed_at=now)
    is_abnormal = stored.status == "True"
    return NodeHealth(
        first_seen=now,
        changed_at=stored.last_transition_time or now,
        findings=(Finding(stored.reason, stored.message),) if is_abnormal else (),
    )


def condition_patch(node: Node, health: NodeHealth, now: datetime) -> dict[str, Any] | None:
    """A strategic merge patch for the node's status; None when the node says so already.

    A node that has always been well gets no condition, and one whose agent may still come has none to get.
    """
    wanted = condition_of(health)
    stored = _stored(node)
    if stored is None and not health.is_abnormal:
        return None
    if stored is not None and _said(stored) == _said(wanted):
        return None
    is_turned = stored is None or stored.status != wanted.status
    since = health.changed_at if is_turned or stored is None else stored.last_transition_time or health.changed_at
    condition = {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastHeartbeatTime": format_time(now),
        "lastTransitionTime": format_time(since),
    }
    return {"status": {"conditions": [condition]}}


def _stored(node: Node) -> NodeCondition | None:
    return next((each for each in node.status.conditions if each.type == CONDITION_TYPE), None)


def _said(condition: NodeCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message
