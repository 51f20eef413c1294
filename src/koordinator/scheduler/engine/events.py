"""What happens in a cluster that may free an unschedulable pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object


class EventKind:
    """Names of what may free an unschedulable pod, as plugins list them (upstream: resource/action)."""

    NODE_ADD: Final = "Node/Add"
    NODE_ALLOCATABLE: Final = "Node/UpdateNodeAllocatable"
    NODE_LABEL: Final = "Node/UpdateNodeLabel"
    NODE_TAINT: Final = "Node/UpdateNodeTaint"
    NODE_CONDITION: Final = "Node/UpdateNodeCondition"
    NODE_DELETE: Final = "Node/Delete"
    POD_DELETE: Final = "Pod/Delete"
    """An assigned pod went away or finished."""
    POD_SCALE_DOWN: Final = "Pod/UpdatePodScaleDown"
    """An assigned pod asks for less."""
    POD_ADD: Final = "Pod/Add"
    """An assigned pod appeared."""
    POD_LABEL: Final = "Pod/UpdatePodLabel"
    """The labels of an assigned pod changed."""
    POD_UPDATE: Final = "Pod/Update"
    """The unschedulable pod itself changed."""
    POD_FINISHED: Final = "FinishedPod/Update"
    """Something is said of a pod that has finished; frees no pod."""


def object_events(*kinds: Kind[Any]) -> frozenset[str]:
    """Every kind of event about objects of ``kinds``, for Plugin.events_to_register."""
    return frozenset(f"{kind.name}/{action}" for kind in kinds for action in ("Add", "Update", "Delete"))


def object_event(kind: Kind[Any], old: Object | None, new: Object | None) -> str:
    """The kind of event that turns ``old`` into ``new``."""
    return f"{kind.name}/{'Add' if old is None else 'Delete' if new is None else 'Update'}"


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something that happened. ``old`` and ``new`` are the object before and after: a Node, a PodInfo, or what the kind
    of event is about; None where there is none, or where it is unknown."""

    kind: str
    old: Any = None
    new: Any = None
