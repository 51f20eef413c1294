"""The node condition that says that a node is abnormal, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from koordinator.api.node import Node, NodeCondition
from koordinator.api.timestamps import format_time
from koordinator.model.overcommit.abnormality import Finding, NodeHealth

CONDITION_TYPE: Final = "ColocationAbnormal"
SOUND: Final = "ReadingsAreSound"
NOT_JUDGED: Final = "NotJudged"
_SOUND_MESSAGE: Final = "the node's agent reports, and what it reports makes sense"
_NOT_JUDGED_MESSAGE: Final = "colocation, or the search for abnormal nodes, is disabled for the node"


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """What is to be written, and what it means."""

    patch: dict[str, Any]
    """A strategic merge patch for the node's status."""
    before: str
    """The reason that the node was abnormal for; empty when it was normal."""
    after: str
    """The same from now on."""
    message: str


def condition_of(health: NodeHealth | None, now: datetime) -> NodeCondition:
    """The condition, as of when it last changed. ``health`` is None where nobody judges the node."""
    if health is None:
        return NodeCondition(CONDITION_TYPE, "False", NOT_JUDGED, _NOT_JUDGED_MESSAGE, last_transition_time=now)
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
    return NodeHealth(
        first_seen=now,
        changed_at=stored.last_transition_time or now,
        findings=(Finding(stored.reason, stored.message),) if _is_true(stored) else (),
    )


def condition_change(node: Node, health: NodeHealth | None, now: datetime) -> ConditionChange | None:
    """What there is to write; None when the node says so already.

    A node that has always been well gets no condition, and what is said of one that is normal and not judged any more
    stays.
    """
    wanted = condition_of(health, now)
    stored = _stored(node)
    was_abnormal = stored is not None and _is_true(stored)
    if not was_abnormal and (stored is None or health is None) and not _is_true(wanted):
        return None
    if stored is not None and _said(stored) == _said(wanted):
        return None
    is_turned = stored is None or stored.status != wanted.status
    since = wanted.last_transition_time or now
    if stored is not None and not is_turned:
        since = stored.last_transition_time or since
    condition = {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastHeartbeatTime": format_time(now),
        "lastTransitionTime": format_time(since),
    }
    return ConditionChange(
        patch={"status": {"conditions": [condition]}},
        before=stored.reason if stored is not None and was_abnormal else "",
        after=wanted.reason if _is_true(wanted) else "",
        message=wanted.message,
    )


def _stored(node: Node) -> NodeCondition | None:
    return next((each for each in node.status.conditions if each.type == CONDITION_TYPE), None)


def _is_true(condition: NodeCondition) -> bool:
    return condition.status == "True"


def _said(condition: NodeCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message
