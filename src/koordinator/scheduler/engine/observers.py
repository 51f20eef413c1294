"""The plugins that keep columns of their own, told of every event; one that fails keeps nobody else from noting it.

What an observer failed to take note of is remembered, so that it can be brought to the truth later (see ``resync``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from koordinator.scheduler.engine.framework import Observer, Plugin

OnError = Callable[[str, str, Exception], None]
"""(plugin, method, error)."""
STATUS: Final = "on_pod_status"
"""Stands for ``on_pod_assigned`` when nothing but the status of a pod has changed."""
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
    """A call of ``point`` that an observer failed in, the last one about its subject."""

    point: str
    arguments: tuple[object, ...]
    tries: int = 0
    """How often it was in vain to tell it anew."""


class Stale:
    """What one observer has missed, by subject: a row, a pod on it, an object."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.missed: dict[Hashable, Missed] = {}

    def add(self, point: str, arguments: tuple[object, ...]) -> None:
        subject = _subject(point, arguments)
        known = self.missed.get(subject)
        if known is not None and point == "on_object":
            # Of what was told before, the observer knows what was there before the first event that it missed.
            arguments = (*arguments[:2], known.arguments[2], arguments[3])
        self.missed[subject] = Missed(point, arguments, known.tries if known is not None else 0)


class Observers:
    """Only methods that a plugin has of its own are called. Without ``on_error``, errors are the caller's."""

    def __init__(self, on_error: OnError | None = None) -> None:
        self._on_error = on_error
        self._told: set[Observer] = set()
        self._listeners: dict[str, list[tuple[str, Observer, Callable[..., None]]]] = {
            point: [] for point in (*_POINTS, STATUS)
        }
        self.stale: dict[Observer, Stale] = {}
        """Those that have missed something."""

    def add(self, observers: Iterable[Observer]) -> None:
        for observer in (each.told for each in observers):
            if observer in self._told:
                continue
            self._told.add(observer)
            name = _name_of(observer)
            for point in _POINTS:
                if getattr(type(observer), point) is not getattr(Observer, point):
                    self._listeners[point].append((name, observer, getattr(observer, point)))
            if observer.follows_status and type(observer).on_pod_assigned is not Observer.on_pod_assigned:
                self._listeners[STATUS].append((name, observer, observer.on_pod_assigned))

    def has(self, point: str) -> bool:
        """Whether anybody wants to be told."""
        return bool(self._listeners[point])

    def tell(self, point: str, *arguments: object) -> None:
        """Call the method ``point`` of all who have it."""
        for name, observer, listener in self._listeners[point]:
            try:
                listener(*arguments)
            except Exception as error:
                self._missed(name, observer, listener.__name__, arguments, error)

    def tell_one(self, observer: Observer, point: str, *arguments: object) -> Any:
        """Call the method ``point`` of ``observer``; returns what it returns, None if it fails."""
        try:
            return getattr(observer, point)(*arguments)
        except Exception as error:
            self._missed(_name_of(observer), observer, point, arguments, error)

    def _missed(
        self, name: str, observer: Observer, point: str, arguments: tuple[object, ...], error: Exception
    ) -> None:
        if self._on_error is None:
            raise error
        stale = self.stale.get(observer)
        if stale is None:
            stale = self.stale[observer] = Stale(name)
        stale.add(point, arguments)
        self._on_error(name, point, error)


def _name_of(observer: Observer) -> str:
    return observer.name if isinstance(observer, Plugin) else type(observer).__name__


def _subject(point: str, arguments: tuple[object, ...]) -> Hashable:
    """Equal for calls of which the later one says all that the earlier one did."""
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
