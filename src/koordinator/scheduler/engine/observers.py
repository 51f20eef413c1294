"""The plugins that keep columns of their own, told of every event; one that fails keeps nobody else from noting it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from koordinator.scheduler.engine.framework import Observer, Plugin

OnError = Callable[[str, str, Exception], None]
"""(plugin, method, error)."""
STATUS: Final = "on_pod_status"
"""Stands for ``on_pod_assigned`` when nothing but the status of a pod has changed."""
_POINTS: Final = ("on_node", "on_node_removed", "on_pod_assigned", "on_pod_removed", "on_node_object", "on_object")


class Observers:
    """Only methods that a plugin has of its own are called. Without ``on_error``, errors are the caller's."""

    def __init__(self, on_error: OnError | None = None) -> None:
        self._on_error = on_error
        self._told: set[Observer] = set()
        self._listeners: dict[str, list[tuple[str, Callable[..., None]]]] = {point: [] for point in (*_POINTS, STATUS)}

    def add(self, observers: Iterable[Observer]) -> None:
        for observer in (each.told for each in observers):
            if observer in self._told:
                continue
            self._told.add(observer)
            name = observer.name if isinstance(observer, Plugin) else type(observer).__name__
            for point in _POINTS:
                if getattr(type(observer), point) is not getattr(Observer, point):
                    self._listeners[point].append((name, getattr(observer, point)))
            if observer.follows_status and type(observer).on_pod_assigned is not Observer.on_pod_assigned:
                self._listeners[STATUS].append((name, observer.on_pod_assigned))

    def tell(self, point: str, *arguments: object) -> None:
        """Call the method ``point`` of all who have it."""
        for name, listener in self._listeners[point]:
            try:
                listener(*arguments)
            except Exception as error:
                if self._on_error is None:
                    raise
                self._on_error(name, listener.__name__, error)
