"""In the place of an event recorder: what it was given."""

from __future__ import annotations

from typing import NamedTuple

from koordinator.api.meta import ObjectReference
from koordinator.api.modification import Modification
from koordinator.kube.events import EventRecorder, EventType


class RecordedEvent(NamedTuple):
    """One event."""

    regarding: ObjectReference
    type: str
    reason: str
    note: str


class RecordedEvents(EventRecorder):
    """Records nothing anywhere else."""

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []
        self.records: list[Modification] = []
        """The modifications that they carry, as the program filled them."""

    def event(
        self,
        regarding: ObjectReference,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        related: ObjectReference | None = None,
        modification: Modification | None = None,
    ) -> None:
        self.events.append(RecordedEvent(regarding, type_, reason, note))
        self.records += [modification] if modification is not None else []

    @property
    def notes(self) -> list[tuple[str, str, str]]:
        """The name of the object, the reason and the note of each."""
        return [(each.regarding.name, each.reason, each.note) for each in self.events]
