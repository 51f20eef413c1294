"""Resynchronises an event handler that failed on an event: it is notified again of the present state of that event's
subject.

Event handlers are passed the state after a change, so that repeating the present state is harmless where they have it,
and repairs what they have missed where they do not. A node whose event was missed is notified with everything on it: a
handler that did not have the node may have skipped its pods without an error.
"""

from __future__ import annotations

from typing import Final, cast

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.scheduler.engine.allocations import Allocation
from koordinator.scheduler.engine.binding_points import AllocatorPlugin
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.event_dispatch import Missed, OnError, Stale
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.pod_info import PodInfo

TRIES: Final = 8
"""After so many failures the event handler is not resynchronised until the next event of the same subject."""
_REMOVALS_FIRST: Final = ("on_node_removed", "on_node")


class Resync:
    """``run`` notifies all stale event handlers of the events that they have missed."""

    def __init__(self, state: ClusterState, on_error: OnError) -> None:
        self._state = state
        self._on_error = on_error

    @property
    def is_needed(self) -> bool:
        """Whether some event handler has missed an event."""
        return bool(self._state.stale_handlers)

    def run(self) -> tuple[list[str], list[str]]:
        """Notify each stale handler once; returns the names of the event handlers that are in sync again, and of those
        that have failed too often on some event, which is dropped."""
        recovered, given_up = [], []
        for handler, stale in list(self._state.stale_handlers.items()):
            if not self._notify(handler, stale):
                given_up.append(stale.name)
            if not stale.missed:
                del self._state.stale_handlers[handler]
                recovered.append(stale.name)
        # Meanwhile, rows were evaluated with the event handler's stale state.
        for row in list(self._state.view.columns.row_of.values()):
            for aspect in self._state.view.columns.aspects:
                self._state.view.columns.touch(row, aspect)
        return [name for name in recovered if name not in given_up], given_up

    def _notify(self, handler: EventHandler, stale: Stale) -> bool:
        """Whether no missed event was dropped."""
        missed, stale.missed = stale.missed, {}
        given_up = False
        for subject, call in sorted(missed.items(), key=_order):
            try:
                self._notify_again(handler, call)
            except Exception as error:
                self._on_error(stale.name, call.point, error)
                call.tries += 1
                if call.tries < TRIES:
                    stale.missed[subject] = call
                else:
                    given_up = True
        return not given_up

    def _notify_again(self, handler: EventHandler, call: Missed) -> None:
        view = self._state.view
        match call.point, call.arguments:
            case "on_node" | "on_node_removed", (int(row), *rest):
                rows = {row}
                if call.point == "on_node_removed":
                    name = str(rest[0])
                    handler.on_node_removed(row, name)
                    # The node may be back, on another row.
                    rows.add(view.columns.row_of.get(name, row))
                for each in rows:
                    self._notify_row(handler, each)
            case "on_pod_assigned" | "on_pod_removed", (int(row), PodInfo() as pod, *_):
                placed = self._state.placed(pod.uid)
                if placed is None or placed.row != row:
                    handler.on_pod_removed(row, pod)
                # It may be on another row by now, or on a node that is away.
                if placed is not None and placed.row >= 0:
                    handler.on_pod_assigned(placed.row, placed.pod, placed.assumed)
                elif (shown := self._state.shown_pod(pod.uid)) is not None:
                    handler.on_pod(*shown)
            case "on_pod" | "on_pod_gone", (PodInfo() as pod, *_):
                shown = self._state.shown_pod(pod.uid)
                if shown is None:
                    handler.on_pod_gone(pod)
                else:
                    handler.on_pod(*shown)
            case "on_allocated" | "on_released", (int(row), PodInfo() as pod, allocation):
                self._notify_allocation(handler, row, pod, allocation)
            case "restore", (PodInfo() as pod, _):
                self._state.restore(pod.uid)
            case "on_node_object", (int(row), str(kind), _):
                if view.columns.alive[row]:
                    objects = self._state.node_objects(view.columns.names[row])
                    handler.on_node_object(row, kind, objects.get(kind))
            case "on_object", (Kind() as kind, str(key), old, _):
                new = view.objects.get(kind.name, {}).get(key)
                if old is not None or new is not None:
                    handler.on_object(kind, key, cast("Object | None", old), new)

    def _notify_allocation(self, handler: EventHandler, row: int, pod: PodInfo, allocation: Allocation) -> None:
        if not isinstance(handler, AllocatorPlugin):
            return
        view = self._state.view
        held = view.allocations.entry(handler.name, pod.uid)
        if held is not None and pod.uid in view.pods_on.get(row, {}):
            handler.on_allocated(row, pod, held)
        else:
            handler.on_released(row, pod, allocation)

    def _notify_row(self, handler: EventHandler, row: int) -> None:
        view = self._state.view
        node = view.columns.nodes[row]
        if node is None:
            return
        handler.on_node(row, node)
        for kind, obj in self._state.node_objects(view.columns.names[row]).items():
            handler.on_node_object(row, kind, obj)
        for pod in list(view.pods_on[row].values()):
            handler.on_pod_assigned(row, pod, self._state.is_assumed(pod.uid))
            if isinstance(handler, AllocatorPlugin):
                held = view.allocations.entry(handler.name, pod.uid)
                if held is not None:
                    handler.on_allocated(row, pod, held)


def _order(item: tuple[object, Missed]) -> int:
    """Removed nodes first, then nodes, then what is on them."""
    point = item[1].point
    return _REMOVALS_FIRST.index(point) if point in _REMOVALS_FIRST else len(_REMOVALS_FIRST)
