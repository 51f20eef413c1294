"""Notifies the plugins that keep columns of their own of every event; a failing plugin does not keep others from it.

Events that an event handler failed to process are recorded, so that it can be resynchronised later (see ``resync``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from koordinator.scheduler.engine.framework import EventHandler, Plugin

OnError = Callable[[str, str, Exception], None]
"""(plugin, method, error)."""
STATUS: Final = "on_pod_status"
"""Used in place of ``on_pod_assigned`` when nothing but the status of a pod has changed."""
_POINTS: Final = (
    "on_node",
    "on_node_removed",
    "on_pod_assigned",
    "on_pod_removed",
    "on_pod",
    "on_pod_gone",
    "on_node_object",
    "on_object",
)


@dataclass(slots=True)
class Missed:
    """A call of ``point`` in which an event handler failed, the last one about its subject."""

    point: str
    arguments: tuple[object, ...]
    tries: int = 0
    """The number of failed resynchronisations."""


class Stale:
    """The events that one event handler has missed, by subject: a row, a pod on it, an object."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.missed: dict[Hashable, Missed] = {}

    def add(self, point: str, arguments: tuple[object, ...]) -> None:
        subject = _subject(point, arguments)
        known = self.missed.get(subject)
        if known is not None and point == "on_object":
            # The handler's state precedes the first missed event, so that event's old object is kept.
            arguments = (*arguments[:2], known.arguments[2], arguments[3])
        self.missed[subject] = Missed(point, arguments, known.tries if known is not None else 0)


class EventDispatcher:
    """Calls only the methods that a plugin overrides. Without ``on_error``, errors are raised to the caller."""

    def __init__(self, on_error: OnError | None = None) -> None:
        self._on_error = on_error
        self._notified: set[EventHandler] = set()
        self._listeners: dict[str, list[tuple[str, EventHandler, Callable[..., None]]]] = {
            point: [] for point in (*_POINTS, STATUS)
        }
        self.stale: dict[EventHandler, Stale] = {}
        """Event handlers that have missed an event."""

    def add(self, event_handlers: Iterable[EventHandler]) -> None:
        for handler in (each.event_handler for each in event_handlers):
            if handler in self._notified:
                continue
            self._notified.add(handler)
            name = _name_of(handler)
            for point in _POINTS:
                if getattr(type(handler), point) is not getattr(EventHandler, point):
                    self._listeners[point].append((name, handler, getattr(handler, point)))
            if handler.handles_status_updates and type(handler).on_pod_assigned is not EventHandler.on_pod_assigned:
                self._listeners[STATUS].append((name, handler, handler.on_pod_assigned))

    def has(self, point: str) -> bool:
        """Whether any event handler implements ``point``."""
        return bool(self._listeners[point])

    def notify(self, point: str, *arguments: object) -> None:
        """Call the method ``point`` of all event handlers that implement it."""
        for name, handler, listener in self._listeners[point]:
            try:
                listener(*arguments)
            except Exception as error:
                self._missed(name, handler, listener.__name__, arguments, error)

    def notify_one(self, handler: EventHandler, point: str, *arguments: object) -> Any:
        """Call the method ``point`` of ``handler``; returns its result, None if it fails."""
        try:
            return getattr(handler, point)(*arguments)
        except Exception as error:
            self._missed(_name_of(handler), handler, point, arguments, error)

    def _missed(
        self, name: str, handler: EventHandler, point: str, arguments: tuple[object, ...], error: Exception
    ) -> None:
        if self._on_error is None:
            raise error
        stale = self.stale.get(handler)
        if stale is None:
            stale = self.stale[handler] = Stale(name)
        stale.add(point, arguments)
        self._on_error(name, point, error)


def _name_of(handler: EventHandler) -> str:
    return handler.name if isinstance(handler, Plugin) else type(handler).__name__


def _subject(point: str, arguments: tuple[object, ...]) -> Hashable:
    """The subject of a call: of two calls with equal subjects, the later one supersedes the earlier."""
    match point, arguments:
        case "on_node_removed", (row, name):
            return point, row, name
        case "on_pod_assigned" | "on_pod_removed", (row, pod, *_):
            return "pod", row, getattr(pod, "uid", None)
        case "on_pod" | "on_pod_gone", (pod, *_):
            return "pod", getattr(pod, "uid", None)
        case "on_node_object", (row, kind, _):
            return point, row, kind
        case "on_allocated" | "on_released", (row, pod, _):
            return "allocation", row, getattr(pod, "uid", None)
        case "restore", (pod, _):
            return point, getattr(pod, "uid", None)
        case "on_object", (kind, key, *_):
            return point, getattr(kind, "name", None), key
    return point, arguments[0]
