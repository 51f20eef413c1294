"""The taints that the conditions of a node call for. Pure.

Taints with the effect NoSchedule follow the conditions at once. The two with NoExecute, which end pods, come at the
rate of the node's zone; see ``zones``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.node import Node, Taint
from koordinator.cluster.controllers.conditions import whole_seconds
from koordinator.cluster.controllers.node_lifecycle.health import FALSE, READY, TRUE, UNKNOWN
from koordinator.model.tolerations import NO_EXECUTE, NO_SCHEDULE

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_BY_CONDITION: Final[Mapping[tuple[str, str], str]] = {
    (READY, FALSE): NOT_READY,
    (READY, UNKNOWN): UNREACHABLE,
    ("MemoryPressure", TRUE): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", TRUE): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", TRUE): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", TRUE): "node.kubernetes.io/network-unavailable",
}
"""(type, status) of a condition -> the key of its taint."""
_OURS: Final = frozenset({*_BY_CONDITION.values(), UNSCHEDULABLE})
LOST: Final[Mapping[str, str]] = {FALSE: NOT_READY, UNKNOWN: UNREACHABLE}
"""The status of the Ready condition -> the key of the taint with the effect NoExecute; a node has one at most."""


def with_no_schedule_taints(node: Node, now: datetime) -> list[Taint] | None:
    """The taints of the node as they have to be; None if they are."""
    found = ((condition.type, condition.status) for condition in node.status.conditions)
    wanted = {_BY_CONDITION[each] for each in found if each in _BY_CONDITION}
    if node.spec.unschedulable:
        wanted.add(UNSCHEDULABLE)
    there = {taint.key for taint in node.spec.taints if taint.effect == NO_SCHEDULE and taint.key in _OURS}
    return _replaced(node.spec.taints, NO_SCHEDULE, sorted(wanted - there), there - wanted, now)


def with_lost_taint(node: Node, status: str, now: datetime) -> list[Taint] | None:
    """The taints of the node where its Ready condition has this status: with one that ends pods, or with none of them
    for a node that is ready. None if the node has these taints."""
    wanted = {LOST[status]} if status in LOST else set()
    there = lost_taints(node)
    return _replaced(node.spec.taints, NO_EXECUTE, sorted(wanted - there), there - wanted, now)


def lost_taints(node: Node) -> set[str]:
    """The keys of the taints that end pods of a lost node, as far as the node has them."""
    return {taint.key for taint in node.spec.taints if taint.effect == NO_EXECUTE and taint.key in LOST.values()}


def _replaced(
    taints: Sequence[Taint], effect: str, added: Iterable[str], removed: set[str], now: datetime
) -> list[Taint] | None:
    new = [Taint(key=key, effect=effect, time_added=whole_seconds(now)) for key in added]
    if not new and not removed:
        return None
    return [*(taint for taint in taints if taint.effect != effect or taint.key not in removed), *new]


def taint_patch(node: Node, taints: Sequence[Taint]) -> Document:
    """A merge patch that gives the node these taints, if nobody has changed it meanwhile."""
    metadata = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata, "spec": {"taints": [to_document(taint) for taint in taints] or None}}
