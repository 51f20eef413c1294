"""Whether a node still lives, and what its conditions say once it does not. Pure.

A sign of life is a renewed Lease or a new heartbeat in the Ready condition. It counts from the moment at which this
program sees it, by its own clock, so that a clock of a node that is wrong makes nobody unhealthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from koordinator.api.document import Document
from koordinator.api.node import Node, NodeCondition
from koordinator.api.timestamps import format_time
from koordinator.cluster.controllers.conditions import find_condition

READY: Final = "Ready"
TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"
GRACE_SECONDS: Final = 50.0
"""--node-monitor-grace-period of kube-controller-manager."""
STARTUP_GRACE_SECONDS: Final = 60.0
"""--node-startup-grace-period: of a node whose kubelet has not reported yet."""
_FROM_KUBELET: Final = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
"""The conditions that a kubelet keeps; that of the network belongs to others."""


@dataclass(frozen=True, slots=True)
class LifeSign:
    """The last sign of life of a node."""

    seen: float
    """In monotonic seconds."""
    heartbeat: datetime | None
    """The one that the Ready condition had then; None if there was no condition."""
    renewed: str
    """The renewTime of the Lease then; empty if there was none."""


def ready_condition(node: Node) -> NodeCondition | None:
    condition: NodeCondition | None = find_condition(node.status.conditions, READY)
    return condition


def ready_status(node: Node) -> str:
    """That of the Ready condition; Unknown if there is none."""
    condition = ready_condition(node)
    return UNKNOWN if condition is None else condition.status


def was_lost(observed: str, current: str) -> bool:
    """Whether a node that said that it is ready is so no longer; both are of its Ready condition."""
    return observed == TRUE and current != TRUE


def last_sign(before: LifeSign | None, node: Node, renewed: str, now: float, wall: datetime) -> LifeSign:
    """The last sign of life as of now. ``renewed`` is the renewTime of the node's Lease, ``now`` in monotonic seconds
    and ``wall`` the time of day."""
    condition = ready_condition(node)
    heartbeat = condition.last_heartbeat_time if condition is not None else None
    seen = now
    if before is not None and heartbeat == before.heartbeat and renewed in ("", before.renewed):
        seen = before.seen
    elif before is None and condition is None and not renewed:
        created = node.metadata.creation_timestamp or wall
        seen = now - max(0.0, (wall - created).total_seconds())
    return LifeSign(seen, heartbeat, renewed or (before.renewed if before is not None else ""))


def is_silent(sign: LifeSign, node: Node, now: float) -> bool:
    """Whether the node has given no sign of life for too long."""
    grace = STARTUP_GRACE_SECONDS if ready_condition(node) is None else GRACE_SECONDS
    return now - sign.seen > grace


def unknown_conditions(node: Node, wall: datetime) -> list[Document]:
    """The conditions of a silent node that have to be written; they merge with the others by their type."""
    written = []
    for type_ in _FROM_KUBELET:
        current: NodeCondition | None = find_condition(node.status.conditions, type_)
        if current is not None and current.status == UNKNOWN:
            continue
        condition: Document = {"type": type_, "status": UNKNOWN, "lastTransitionTime": format_time(wall)}
        if current is None:
            condition |= {"reason": "NodeStatusNeverUpdated", "message": "Kubelet never posted node status."}
            condition["lastHeartbeatTime"] = format_time(node.metadata.creation_timestamp or wall)
        else:
            condition |= {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        written.append(condition)
    return written


_LABEL_PAIRS: Final = (
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
)


def label_changes(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of before Kubernetes 1.14 that do not say what their successors say."""
    return {old: labels[new] for new, old in _LABEL_PAIRS if new in labels and labels.get(old) != labels[new]}
