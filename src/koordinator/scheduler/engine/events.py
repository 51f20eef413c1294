"""Cluster events that may make an unschedulable pod schedulable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.scheduler.engine.pod_info import PodInfo


class EventKind:
    """Kinds of cluster event, as plugins register for them (upstream: resource/action)."""

    NODE_ADD: Final = "Node/Add"
    NODE_ALLOCATABLE: Final = "Node/UpdateNodeAllocatable"
    NODE_LABEL: Final = "Node/UpdateNodeLabel"
    NODE_TAINT: Final = "Node/UpdateNodeTaint"
    NODE_CONDITION: Final = "Node/UpdateNodeCondition"
    NODE_DELETE: Final = "Node/Delete"
    POD_DELETE: Final = "Pod/Delete"
    """An assigned pod was deleted or finished."""
    POD_SCALE_DOWN: Final = "Pod/UpdatePodScaleDown"
    """An assigned pod requests less."""
    POD_ADD: Final = "Pod/Add"
    """An assigned pod appeared."""
    POD_LABEL: Final = "Pod/UpdatePodLabel"
    """The labels of an assigned pod changed."""
    POD_READABLE: Final = "Pod/UpdateToReadable"
    """What an assigned pod holds, or the whole pod, can be read again."""
    POD_UPDATE: Final = "Pod/Update"
    """The unschedulable pod itself changed."""
    POD_FINISHED: Final = "FinishedPod/Update"
    """A pod that has finished was shown or changed; makes no pod schedulable."""


def object_events(*kinds: Kind[Any], actions: Iterable[str] = ("Add", "Update", "Delete")) -> frozenset[str]:
    """Every kind of event about objects of ``kinds``, or those of some actions, for Plugin.events_to_register."""
    return frozenset(f"{kind.name}/{action}" for kind in kinds for action in actions)


def object_event(kind: Kind[Any], old: Object | None, new: Object | None) -> str:
    """The kind of event for the change of ``old`` into ``new``; None is a missing object."""
    return f"{kind.name}/{'Add' if old is None else 'Delete' if new is None else 'Update'}"


def node_changes(old: Node, new: Node) -> frozenset[str]:
    """The event kinds that turn ``old`` into ``new``; empty if only heartbeats differ."""
    kinds: set[str] = set()
    before, after = old.status, new.status
    if before.allocatable != after.allocatable or before.capacity != after.capacity:
        kinds.add(EventKind.NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        kinds.add(EventKind.NODE_LABEL)
    if old.metadata.annotations != new.metadata.annotations:
        # Annotations of a node concern its capacity or its thresholds.
        kinds.add(EventKind.NODE_ALLOCATABLE)
    if old.spec != new.spec:
        kinds.add(EventKind.NODE_TAINT)
    if _condition_states(old) != _condition_states(new) or before.images != after.images:
        kinds.add(EventKind.NODE_CONDITION)
    return frozenset(kinds)


def _condition_states(node: Node) -> list[tuple[str, str]]:
    return [(condition.type, condition.status) for condition in node.status.conditions]


class ClusterEvent(msgspec.Struct, frozen=True):
    """A cluster event. ``old`` and ``new`` are the object before and after: a Node, a PodInfo, or an object of the kind
    that the event is about; None where there is none, or where it is unknown."""

    kind: str
    old: Any = None
    new: Any = None

    @property
    def node_name(self) -> str:
        """The node of the pod that the event is about, or the name of the object, which nodes share with what is of
        them, such as NodeMetrics; "" if it is unknown."""
        about = self.new if self.new is not None else self.old
        if about is None:
            return ""
        return str(about.pod.spec.node_name if isinstance(about, PodInfo) else about.metadata.name)
