"""Whether an event may let a pod in that its DoNotSchedule constraints kept out (upstream: queueing hints)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from koordinator.api.node import Node
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.pod_topology_spread.constraints import SpreadConstraint

_POD_EVENTS: Final = frozenset({EventKind.POD_ADD, EventKind.POD_DELETE, EventKind.POD_LABEL, EventKind.POD_UPDATE})
_NODE_EVENTS: Final = frozenset({EventKind.NODE_ADD, EventKind.NODE_DELETE, EventKind.NODE_LABEL, EventKind.NODE_TAINT})
EVENTS_TO_REGISTER: Final = _POD_EVENTS | _NODE_EVENTS
_Constraints = Sequence[SpreadConstraint]


def queueing_hint(pod: PodInfo, constraints: _Constraints, event: ClusterEvent) -> bool:
    """True in doubt: for other kinds of event, and for those that do not say what they are about."""
    if event.old is None and event.new is None:
        return True
    if event.kind in _POD_EVENTS:
        return _pod_helps(pod, constraints, event.old, event.new)
    if event.kind in _NODE_EVENTS:
        return _node_helps(constraints, event.old, event.new)
    return True


def _pod_helps(pod: PodInfo, constraints: _Constraints, old: PodInfo | None, new: PodInfo | None) -> bool:
    """A pod in another namespace counts for nothing; one that changes must begin or cease to match."""
    namespace = pod.pod.metadata.namespace
    if any(each is not None and each.pod.metadata.namespace != namespace for each in (old, new)):
        return False
    if old is None or new is None:
        only = old or new
        return only is not None and any(each.selector.matches(only.pod.metadata.labels) for each in constraints)
    tolerates_else = new.uid == pod.uid and old.pod.spec.tolerations != new.pod.spec.tolerations
    if tolerates_else and any(each.honors_taints for each in constraints):
        return True
    before, after = old.pod.metadata.labels, new.pod.metadata.labels
    return before != after and any(
        each.selector.matches(before) != each.selector.matches(after) for each in constraints
    )


def _node_helps(constraints: _Constraints, old: Node | None, new: Node | None) -> bool:
    """Only nodes with all topology keys count; one that stays so must change domain or taints."""
    counted = old is not None and _has_keys(old.metadata.labels, constraints)
    counts = new is not None and _has_keys(new.metadata.labels, constraints)
    if old is None or new is None or counted != counts:
        return counted or counts
    return counts and (
        old.spec.taints != new.spec.taints
        or any(old.metadata.labels[each.topology_key] != new.metadata.labels[each.topology_key] for each in constraints)
    )


def _has_keys(labels: Mapping[str, str], constraints: _Constraints) -> bool:
    return all(constraint.topology_key in labels for constraint in constraints)
