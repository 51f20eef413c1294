"""Rebuilds an event handler that failed at an event: what it keeps is dropped, and it is notified of all that is there,
as at a start.

This is one step between two decisions, so that none is made by half of the state. If the event handler fails at
something again, it is rebuilt once more without that, since the failed call may have changed a part of its state: an
object that it cannot process costs the author of that object alone.
"""

from __future__ import annotations

from typing import Final

from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.event_listeners import Subject, subject_of
from koordinator.scheduler.engine.framework import EventHandler

TRIES: Final = 8
"""After so many rebuilds, what the event handler fails at is left out until the next event of that subject."""


class Resync:
    """``run`` rebuilds all stale event handlers."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._dispatcher = state.event_handlers
        self._tries: dict[EventHandler, int] = {}
        """The rebuilds of each event handler that had to leave something out, since it last had to leave out
        nothing."""

    @property
    def is_needed(self) -> bool:
        """Whether some event handler is stale."""
        return bool(self._dispatcher.stale)

    def run(self) -> tuple[list[str], dict[str, list[str]]]:
        """Rebuild each stale handler; returns the names of the event handlers that know everything again, and those
        that have failed too often, with what they leave out."""
        recovered, given_up = [], dict[str, list[str]]()
        for handler, name in list(self._dispatcher.stale.items()):
            if self._rebuild(handler):
                self._tries.pop(handler, None)
                recovered.append(name)
                continue
            self._tries[handler] = tries = self._tries.get(handler, 0) + 1
            if tries < TRIES:
                self._dispatcher.stale[handler] = name
            else:
                del self._tries[handler]
                given_up[name] = sorted(map(self._text, self._dispatcher.left_out[handler]))
        # What was computed from the states of the event handlers is void.
        view = self._state.view
        view.engine_filters = [*view.engine_filters]
        for row in view.columns.row_of.values():
            view.columns.touch(row, Aspect.NODE)
        return recovered, given_up

    def _rebuild(self, handler: EventHandler) -> bool:
        """Whether nothing was left out."""
        left_out = set[Subject]()
        self._dispatcher.left_out.pop(handler, None)
        while failed := self._replay(handler, left_out):
            left_out |= failed
        if left_out:
            self._dispatcher.left_out[handler] = left_out
        return not left_out

    def _replay(self, handler: EventHandler, left_out: set[Subject]) -> set[Subject]:
        """Returns the subjects, of those that were not left out, at which the event handler has failed."""
        dispatcher, failed = self._dispatcher, set[Subject]()
        dispatcher.stale.pop(handler, None)
        for plugin, point, *arguments in self._state.replay(handler):
            if left_out and subject_of(point, arguments) in left_out:
                continue
            if point == "restore":
                self._state.restore(arguments[0].uid, plugin)
            else:
                dispatcher.notify_one(plugin, point, *arguments)
            if dispatcher.stale.pop(handler, None) is not None:
                failed.add(subject_of(point, arguments))
        return failed

    def _text(self, subject: Subject) -> str:
        kind, key = subject
        return f"{kind} {self._state.view.columns.names[key] if isinstance(key, int) else key}"
