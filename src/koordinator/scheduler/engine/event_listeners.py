"""Who is notified of events: the plugins that keep columns of their own. The cluster state calls them.

An event handler that failed is stale until it has been rebuilt, see ``resync``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from koordinator.scheduler.engine.framework import EventHandler, Plugin, may_read
from koordinator.scheduler.engine.pod_info import PodInfo

OnError = Callable[[str, str, Exception], None]
"""(plugin, method, error)."""
Subject = tuple[str, str | int]
"""A kind, and a row, a uid or a key."""
STATUS: Final = "on_pod_status"
"""Used in place of ``on_pod_assigned`` when nothing but the status of a pod has changed."""
_POINTS: Final = (
    "on_node",
    "on_node_removed",
    "on_pod_assigned",
    "on_pod_resized",
    "on_pod_removed",
    "on_pod",
    "on_pod_gone",
    "on_node_object",
    "on_object",
)
_numbers = itertools.count()
_Listeners = list[tuple[EventHandler, Callable[..., None]]]
_RESIZED_BY: Final = ("on_pod_resized", "on_pod_assigned", "on_pod_removed")
"""The default of ``on_pod_resized`` calls the others."""


class EventListeners:
    """By event, the methods that plugins override. Without ``on_error``, their errors are raised to the caller.

    ``simulations`` has something in it while pods are moved in a simulation.
    """

    def __init__(self, on_error: OnError | None = None, simulations: Collection[object] = ()) -> None:
        self._on_error = on_error
        self._simulations = simulations
        self.of_all: dict[str, _Listeners] = {point: [] for point in (*_POINTS, STATUS)}
        self._selective: list[EventHandler] = []
        """Those that do not read all pods."""
        self.memo = f"listeners/{next(_numbers)}"
        """The key under which a pod's memo has those that read the pod, in the form of ``of_all``."""
        self._audiences: dict[frozenset[EventHandler], dict[str, _Listeners]] = {}
        """``of_all`` without those that do not read a pod, by these."""
        self._names: dict[EventHandler, str] = {}
        """Those of the plugins; of one if several share the event handler."""
        self.stale: dict[EventHandler, str] = {}
        """The event handlers that have failed, with their names."""
        self.on_stale: Callable[[], None] = lambda: None
        """Called when an event handler becomes stale."""
        self.left_out: dict[EventHandler, set[Subject]] = {}
        """The subjects that an event handler knows nothing of, since it fails at them. It is not notified of their
        events; the next one makes it stale."""

    def add(self, event_handlers: Iterable[EventHandler]) -> None:
        for each in event_handlers:
            handler = each.event_handler
            if handler in self._names:
                continue
            self._names[handler] = each.name if isinstance(each, Plugin) else type(each).__name__
            if overrides(handler, "reads_pod"):
                self._selective.append(handler)
            for point in _POINTS:
                if overrides(handler, *(_RESIZED_BY if point == "on_pod_resized" else (point,))):
                    self.of_all[point].append((handler, getattr(handler, point)))
            if handler.handles_status_updates and overrides(handler, "on_pod_assigned"):
                self.of_all[STATUS].append((handler, handler.on_pod_assigned))

    def choose_audience(self, pod: PodInfo) -> None:
        """Pass over those that do not read the pod, until it changes in more than its status."""
        idle = frozenset([handler for handler in self._selective if not may_read(handler.reads_pod, pod)])
        if idle not in self._audiences:
            listeners = self.of_all.items()
            self._audiences[idle] = {point: [each for each in of if each[0] not in idle] for point, of in listeners}
        pod.memo[self.memo] = self._audiences[idle]

    def notify_one(self, plugin: EventHandler, point: str, *arguments: object) -> Any:
        """Call the method ``point`` of a plugin or event handler; returns its result, None if it fails."""
        if self.left_out and self.leaves_out(plugin.event_handler, point, arguments):
            return None
        try:
            return getattr(plugin, point)(*arguments)
        except Exception as error:
            self.failed(plugin.event_handler, point, error)

    def leaves_out(self, handler: EventHandler, point: str, arguments: Sequence[Any]) -> bool:
        """Whether the event handler is not to be notified, since it knows nothing of the subject."""
        found = subject_of(point, arguments) in self.left_out.get(handler, ())
        if found and not self._simulations:
            self._set_stale(handler)
        return found

    def failed(self, handler: EventHandler, point: str, error: Exception) -> None:
        """The event handler has raised the error."""
        if self._on_error is None:
            raise error
        self._set_stale(handler)
        self._on_error(self._names[handler], point, error)

    def _set_stale(self, handler: EventHandler) -> None:
        self.stale[handler] = self._names[handler]
        self.on_stale()


def overrides(handler: EventHandler, *points: str) -> bool:
    """Whether the event handler implements any of ``points``."""
    return any(getattr(type(handler), point) is not getattr(EventHandler, point) for point in points)


def subject_of(point: str, arguments: Sequence[Any]) -> Subject:
    """What a call is about: the node of a row, an object that bears its name, a pod, another object; or nothing."""
    match point, arguments:
        case _, ():
            return "", point
        case "on_object", (kind, key, *_):
            return kind.name, key
        case "on_node_object", (row, kind, _):
            return kind, row
        case "on_node" | "on_node_removed", (row, _):
            return "Node", row
        case "on_pod" | "on_pod_gone" | "restore", (pod, *_):
            return "Pod", pod.uid
    return "Pod", arguments[1].uid
