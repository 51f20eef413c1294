"""Kinds of events as a person would name them: what an unschedulable pod waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.scheduler.engine.events import EventKind

_MEANING: Final[Mapping[str, str]] = {
    EventKind.NODE_ADD: "a node is added",
    EventKind.NODE_ALLOCATABLE: "a node offers more, or an annotation of it changes",
    EventKind.NODE_LABEL: "labels of a node change",
    EventKind.NODE_TAINT: "a node is uncordoned or its taints change",
    EventKind.NODE_CONDITION: "conditions or images of a node change",
    EventKind.NODE_DELETE: "a node is deleted",
    EventKind.POD_DELETE: "a pod on some node finishes or is deleted",
    EventKind.POD_SCALE_DOWN: "a pod on some node is resized to request less",
    EventKind.POD_ADD: "another pod is placed",
    EventKind.POD_LABEL: "labels of a pod on some node change",
    EventKind.POD_UPDATE: "this pod itself is changed",
    "NodeMetric/Add": "a node reports its usage for the first time",
    "NodeMetric/Update": "a node reports new usage",
    "NodeMetric/Expire": "the usage report of a node becomes too old, so that its load is no longer looked at",
    "NodeMetric/Delete": "the usage report of a node is deleted",
}
_ACTIONS: Final = {"Add": "created", "Update": "changed", "Delete": "deleted"}


def event_meaning(kind: str) -> str:
    """``Node/Add`` as a person would say it."""
    known = _MEANING.get(kind)
    if known is not None:
        return known
    name, _, action = kind.partition("/")
    return f"a {name} is {_ACTIONS.get(action, 'changed')}"
