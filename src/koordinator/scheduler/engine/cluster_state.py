"""The cluster as decisions see it, kept current by events: which node has which pods, assumed ones included.

Events may come in any order between kinds: a pod may show up on a node that is not known yet, a node may go while pods
are on it and come back, and the API may bind a pod elsewhere than assumed. In each case the API's state wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectMeta
from koordinator.api.node import Node
from koordinator.base.groups import Groups
from koordinator.scheduler.engine.binding_points import AllocatorPlugin
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.event_listeners import STATUS, EventListeners, OnError, overrides
from koordinator.scheduler.engine.events import EventKind, node_changes
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.journal import Journal
from koordinator.scheduler.engine.pod_info import PlacedPod, PodInfo
from koordinator.scheduler.engine.view import ClusterView

_NOWHERE: Final = -1


class ClusterState:
    """Applies events to the columns and notifies the event handlers."""

    def __init__(self, view: ClusterView, on_error: OnError | None = None) -> None:
        self.view = view
        view.simulate = partial(Journal, self, view.columns, view.allocations, view.pods_on, [])
        view.node_of = self.node_of
        self._columns = view.columns
        self._allocations = view.allocations
        self.event_handlers = EventListeners(on_error, view.columns.simulations)
        self._allocators: dict[EventHandler, list[AllocatorPlugin]] = {}
        """The plugins that allocate, by what is notified of events in their place."""
        self._placed: dict[str, PlacedPod] = {}
        self._without_node = Groups[str, str, PlacedPod]()
        self._node_objects = Groups[str, str, Object]()
        self._kinds: dict[str, Kind[Any]] = {}
        """Those of ``view.objects``, by name."""
        self._shown: dict[str, tuple[PodInfo, str]] = {}
        """Pods that the API has, with the names of their nodes; kept only if ``shows_pods``."""
        self.shows_pods = False
        """Whether some event handler wants pods that are on no node, too."""

    def add_event_handlers(self, event_handlers: Iterable[EventHandler]) -> None:
        """Register who is notified; to be called before the first event."""
        for handler in event_handlers:
            self.event_handlers.add([handler])
            if isinstance(handler, AllocatorPlugin):
                self.view.allocations.register(handler.name, partial(self.event_handlers.notify_one, handler))
                self._allocators.setdefault(handler.event_handler, []).append(handler)
        self.shows_pods = bool(self.event_handlers.of_all["on_pod"] or self.event_handlers.of_all["on_pod_gone"])

    @property
    def pod_count(self) -> int:
        """The number of pods on nodes, assumed ones included."""
        return len(self._placed)

    @property
    def assumed_count(self) -> int:
        """The number of pods whose binding the API has not confirmed yet."""
        return sum(1 for placed in self._placed.values() if placed.assumed)

    def has_node(self, name: str) -> bool:
        return name in self._columns.row_of

    def node(self, name: str) -> Node | None:
        row = self._columns.row_of.get(name)
        return self._columns.nodes[row] if row is not None else None

    def node_of(self, uid: str) -> str | None:
        """The name of the node that the pod is on, or is assumed on; None if there is none."""
        placed = self._placed.get(uid)
        return placed.node_name if placed else None

    def confirmed_node(self, uid: str) -> str | None:
        """The name of the node that the API has an assumed pod on; empty while it is only assumed, None if the API has
        the pod no more."""
        placed = self._placed.get(uid)
        if placed is None:
            return None
        return "" if placed.assumed else placed.node_name

    # Nodes.

    def set_node(self, node: Node) -> frozenset[str]:
        """Apply a new or changed node; returns the kinds of event that this is, empty when nothing relevant changed."""
        name = node.metadata.name
        row = self._columns.row_of.get(name)
        if row is None:
            self._add_node(node)
            return frozenset({EventKind.NODE_ADD})
        old = self._columns.nodes[row]
        kinds = node_changes(old, node) if old is not None else frozenset({EventKind.NODE_ADD})
        if not kinds:
            self._columns.nodes[row] = node
            return kinds
        self._columns.set_node(node)
        self._notify("on_node", row, node)
        return kinds

    def _add_node(self, node: Node) -> None:
        name = node.metadata.name
        row = self._columns.set_node(node)
        self.view.pods_on[row] = {}
        self._notify("on_node", row, node)
        for kind, obj in self._node_objects.of(name).items():
            self._notify("on_node_object", row, kind, obj)
        for placed in self._without_node.pop(name, {}).values():
            self._occupy(placed, row)

    def remove_node(self, name: str) -> bool:
        """Remove a node; its pods and their allocations are kept until the node comes back or they are deleted. Pods
        that are only assumed are on no node meanwhile, which event handlers cannot tell from objects."""
        row = self._columns.row_of.get(name)
        if row is None:
            return False
        pods = self.view.pods_on.pop(row, {})
        for uid, pod in pods.items():
            self._count_labels(row, pod, -1)
            self._allocations.detach(row, pod)
            if self._placed[uid].assumed:
                self._notify("on_pod_removed", row, pod, about=pod)
        self._notify("on_node_removed", row, name)
        self._columns.remove_node(name)
        for uid in pods:
            placed = self._placed[uid]
            placed.row = _NOWHERE
            self._without_node.put(name, uid, placed)
        return True

    def set_node_object(self, kind: str, name: str, obj: Object | None) -> None:
        """Apply an object of ``kind`` that bears a node's name, new or changed; None if it is gone."""
        if obj is not None:
            self._node_objects.put(name, kind, obj)
        elif self._node_objects.take(name, kind) is None:
            return
        row = self._columns.row_of.get(name)
        if row is not None:
            self._notify("on_node_object", row, kind, obj)

    # Other objects.

    def set_object(self, kind: Kind[Any], key: str, obj: Object | None) -> Object | None:
        """Apply an object of a kind that plugins watch, new or changed, or (None) gone; returns its previous state."""
        objects = self.view.objects.setdefault(kind.name, {})
        self._kinds[kind.name] = kind
        old = objects.get(key)
        if obj is not None:
            objects[key] = obj
        elif old is None:
            return None
        else:
            del objects[key]
        self._notify("on_object", kind, key, old, obj)
        return old

    # Pods.

    def set_pod(self, pod: PodInfo, node_name: str, *, assumed: bool = False) -> None:
        """The API shows the pod on ``node_name``: confirms or corrects an assumption."""
        placed = self._placed.get(pod.uid)
        if placed is not None and placed.node_name == node_name:
            self._update(placed, pod, assumed)
            return
        if placed is not None:
            self._remove(placed)
        placed = self._placed[pod.uid] = PlacedPod(pod, node_name, _NOWHERE, assumed)
        row = self._columns.row_of.get(node_name)
        if row is None:
            self._without_node.put(node_name, pod.uid, placed)
        else:
            self._occupy(placed, row)

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """Count the pod on its chosen node; ``set_pod`` confirms, ``forget`` undoes it."""
        if self.event_handlers.memo not in pod.memo:
            self.event_handlers.choose_audience(pod)
        self.set_pod(pod, node_name, assumed=True)

    def forget(self, uid: str) -> bool:
        """Undo an assumption. A pod that the API has on a node stays; False then."""
        placed = self._placed.get(uid)
        if placed is None or not placed.assumed:
            return False
        self._remove(placed)
        return True

    def show_pod(self, pod: PodInfo, node_name: str) -> None:
        """The API has the pod, which has not finished, on ``node_name``; "" for no node."""
        if not self.shows_pods:
            return
        known = self._shown.get(pod.uid)
        self._shown[pod.uid] = pod, node_name
        if known is None or known[1] != node_name or not _is_unchanged(known[0], pod):
            self._notify("on_pod", pod, node_name, about=pod)

    def hide_pod(self, uid: str) -> None:
        """The API does not have the pod any more, or it has finished."""
        shown = self._shown.pop(uid, None)
        if shown is not None:
            self._notify("on_pod_gone", shown[0], about=shown[0])

    def shown_pod(self, uid: str) -> tuple[PodInfo, str] | None:
        """The pod with the name of its node, as the API last had it."""
        return self._shown.get(uid)

    # For the resynchronisation of event handlers.

    def replay(self, handler: EventHandler) -> Iterator[tuple[Any, ...]]:
        """The calls that empty the event handler and notify it of all that is there: whose method, its name, and the
        arguments. Objects about nodes come last, as at a start, since they are evaluated together with the node's
        pods."""
        yield handler, "on_reset"
        for name, objects in self.view.objects.items() if overrides(handler, "on_object") else ():
            for key, obj in objects.items():
                yield handler, "on_object", self._kinds[name], key, None, obj
        nodes = list(self._columns.row_of.items())
        for _, row in nodes if overrides(handler, "on_node") else ():
            yield handler, "on_node", row, self._columns.nodes[row]
        for shown in list(self._shown.values()) if overrides(handler, "on_pod") else ():
            yield handler, "on_pod", *shown
        if handler in self._allocators or overrides(handler, "on_pod_assigned"):
            for _, row in nodes:
                yield from self._replay_pods(handler, row)
        for name, row in nodes if overrides(handler, "on_node_object") else ():
            for kind, about in self._node_objects.of(name).items():
                yield handler, "on_node_object", row, kind, about

    def _replay_pods(self, handler: EventHandler, row: int) -> Iterator[tuple[Any, ...]]:
        for uid, pod in self.view.pods_on[row].items():
            assumed = self._placed[uid].assumed
            yield handler, "on_pod_assigned", row, pod, assumed
            for allocator in self._allocators.get(handler, ()):
                held = self._allocations.entry(allocator.name, uid)
                if held is not None:
                    yield allocator, "on_allocated", row, pod, held
                if not assumed:
                    yield allocator, "restore", pod

    # For simulations, see ``Journal``.

    def placed(self, uid: str) -> PlacedPod | None:
        """The pod's placement; to be read only."""
        return self._placed.get(uid)

    def put_back(self, placed: PlacedPod) -> None:
        """Undo ``take_off``; does nothing if ``take_off`` failed before it began."""
        if placed.pod.uid not in self._placed:
            self._placed[placed.pod.uid] = placed
            self._occupy(placed, placed.row)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """The pod is deleted or finished; returns it if it was on a node."""
        placed = self._placed.get(uid)
        if placed is None:
            return None
        self._remove(placed)
        return placed.pod

    def _occupy(self, placed: PlacedPod, row: int) -> None:
        pod = placed.pod
        placed.row = row
        self.view.pods_on[row][pod.uid] = pod
        self._count_labels(row, pod, 1)
        self._columns.add_request(row, pod.request.counted, pod.request.non_zero)
        self._notify("on_pod_assigned", row, pod, placed.assumed, about=pod)
        if pod.uid in self._allocations.of_pod:
            self._allocations.attach(row, pod)
        if self._allocations.has_plugins and not placed.assumed:
            self._allocations.restore(row, pod, self._columns.reference(row))

    def restore(self, uid: str, allocator: AllocatorPlugin | None = None) -> None:
        """Read again from the annotations of a pod on a node what it holds, of one plugin or of all."""
        placed = self._placed.get(uid)
        if placed is not None and placed.row >= 0:
            name = allocator.name if allocator is not None else ""
            self._allocations.restore(placed.row, placed.pod, self._columns.reference(placed.row), name)

    def _update(self, placed: PlacedPod, pod: PodInfo, assumed: bool) -> None:
        old, row = placed.pod, placed.row
        placed.pod, placed.assumed = pod, assumed
        if row < 0:
            return
        self.view.pods_on[row][pod.uid] = pod
        if _counts_otherwise(old.pod.metadata, pod.pod.metadata):
            self._count_labels(row, old, -1)
            self._count_labels(row, pod, 1)
            self._columns.touch(row, Aspect.LABELS)
        # Pods that share a memo have the same spec, labels, annotations and owners.
        is_alike = old.memo is pod.memo
        if old.request is not pod.request and old.request != pod.request:
            self._columns.add_request(row, old.request.counted, old.request.non_zero, -1)
            self._columns.add_request(row, pod.request.counted, pod.request.non_zero)
            self._notify("on_pod_resized", row, old, pod)
        else:
            point = STATUS if is_alike else "on_pod_assigned"
            self._notify(point, row, pod, assumed, about=pod)
        if not is_alike and not assumed and self._allocations.has_plugins:
            self.restore(pod.uid)

    def _remove(self, placed: PlacedPod) -> None:
        if placed.row < 0:
            del self._placed[placed.pod.uid]
            self._without_node.take(placed.node_name, placed.pod.uid)
        else:
            self.take_off(placed)
        self._allocations.forget(placed.pod.uid)

    def take_off(self, placed: PlacedPod) -> None:
        """Stop counting the pod on its node, which is known; its allocations stay in the ledger."""
        pod = placed.pod
        del self._placed[pod.uid]
        del self.view.pods_on[placed.row][pod.uid]
        self._count_labels(placed.row, pod, -1)
        self._columns.add_request(placed.row, pod.request.counted, pod.request.non_zero, -1)
        if pod.uid in self._allocations.of_pod:
            self._allocations.detach(placed.row, pod)
        self._notify("on_pod_removed", placed.row, pod, about=pod)

    def _count_labels(self, row: int, pod: PodInfo, sign: int) -> None:
        """Count the pod on ``row`` in its label group: one pod more, or (-1) one less."""
        labels, metadata = self.view.labels, pod.pod.metadata
        group = pod.memo.get(labels.memo)
        terminating = metadata.deletion_timestamp is not None
        # Pods with one memo may differ in labels that the API server has added, and in being deleted.
        if group is None or not group.rows or group.terminating is not terminating or group.labels != metadata.labels:
            group = pod.memo[labels.memo] = labels.group_of(metadata, terminating=terminating)
        rows, on_row = group.rows, labels.on_rows[row]
        # One that was never counted must not become less than none unnoticed.
        count = (rows[row] if sign < 0 else rows.get(row, 0)) + sign
        if count:
            rows[row] = on_row[group.number] = count
            return
        del rows[row], on_row[group.number]
        if not rows:
            labels.drop(group)

    def _notify(self, point: str, *arguments: object, about: PodInfo | None = None) -> None:
        """Call the method ``point`` of all event handlers that implement it, but not of those that do not read the pod
        ``about``, as far as that is known. One that fails becomes stale; the others are notified all the same."""
        listeners = self.event_handlers
        of_points = listeners.of_all if about is None else about.memo.get(listeners.memo, listeners.of_all)
        left_out = listeners.left_out
        for handler, listener in of_points[point]:
            if left_out and listeners.leaves_out(handler, point, arguments):
                continue
            try:
                listener(*arguments)
            except Exception as error:
                listeners.failed(handler, listener.__name__, error)


def _is_unchanged(old: PodInfo, new: PodInfo) -> bool:
    """Whether at most the status differs."""
    before, after = old.pod.metadata.deletion_timestamp, new.pod.metadata.deletion_timestamp
    return old.memo is new.memo and before == after


def _counts_otherwise(before: ObjectMeta, after: ObjectMeta) -> bool:
    """Whether the pod has moved to another label group, which is what selectors see."""
    return before.labels != after.labels or (before.deletion_timestamp is None) != (after.deletion_timestamp is None)
