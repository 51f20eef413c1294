"""Conditions in the status of workloads, and patches of a status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.meta import WireStruct


def whole_seconds(now: datetime) -> datetime:
    """``now`` as Kubernetes writes it."""
    return now.replace(microsecond=0)


def find_condition(conditions: Sequence[Any], type_: str) -> Any:
    """The condition of this type; None if there is none."""
    return next((condition for condition in conditions if condition.type == type_), None)


def without_condition(conditions: Sequence[Any], type_: str) -> list[Any]:
    """The conditions of all other types."""
    return [condition for condition in conditions if condition.type != type_]


def status_patch(old: WireStruct, new: WireStruct) -> Document | None:
    """A merge patch of what differs; None if nothing does. What has its default is removed from the object, unless it
    is required."""
    before, after = to_document(old), to_document(new)
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return {"status": {name: after.get(name) for name in changed}} if changed else None
