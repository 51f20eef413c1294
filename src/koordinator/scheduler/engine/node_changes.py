"""What kinds of event turn one state of a node into another."""

from __future__ import annotations

from koordinator.api.node import Node
from koordinator.scheduler.engine.events import EventKind


def node_changes(old: Node, new: Node) -> frozenset[str]:
    """The event kinds that turn ``old`` into ``new``; heartbeats alone are none."""
    kinds: set[str] = set()
    before, after = old.status, new.status
    if before.allocatable != after.allocatable or before.capacity != after.capacity:
        kinds.add(EventKind.NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        kinds.add(EventKind.NODE_LABEL)
    if old.metadata.annotations != new.metadata.annotations:
        # What annotations say about a node is about its capacity or its thresholds.
        kinds.add(EventKind.NODE_ALLOCATABLE)
    if old.spec != new.spec:
        kinds.add(EventKind.NODE_TAINT)
    if _condition_states(old) != _condition_states(new) or before.images != after.images:
        kinds.add(EventKind.NODE_CONDITION)
    return frozenset(kinds)


def _condition_states(node: Node) -> list[tuple[str, str]]:
    return [(condition.type, condition.status) for condition in node.status.conditions]
