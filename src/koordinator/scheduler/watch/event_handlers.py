"""Applies the API's events to the cluster state and the queue: which objects are watched, and what each change of one
means for scheduling. Pods that have finished are passed only to plugins that handle them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from koordinator.api.kinds import NODES, PODS, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.kube.handlers import MalformedHandler
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Malformed
from koordinator.model.transformers import PodStep, node_as_seen
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_event
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.framework_hooks import FinishedPodHandler
from koordinator.scheduler.engine.pod_info import PodFacts, PodInfo, PodRequest, finished_pod_as_seen, pod_as_seen
from koordinator.scheduler.engine.post_filter import is_preempted
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from koordinator.scheduler.watch.unreadable_pods import UnreadablePodHandlers

T = TypeVar("T", bound=Object)
_NOT_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_FINISHED: Final = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"


class NominationWrites(Protocol):
    """What this scheduler writes to the status of pods."""

    def is_behind(self, pod: Pod) -> bool:
        """Whether this state of the pod is older than the last decision about its nomination."""

    def drop(self, uid: str) -> None:
        """The pod is gone."""


class EventHandlers:
    """``is_ours`` decides by scheduler name which pods to queue; ``wake`` is called when there may be work, and
    ``on_change`` with each event once the cluster state shows it. With ``foreign_nominations``, pods that other
    schedulers have nominated to nodes count there."""

    def __init__(
        self,
        state: ClusterState,
        queue: SchedulingQueue,
        facts: PodFacts,
        is_ours: Callable[[str], bool],
        wake: Callable[[], None],
        now: Callable[[], datetime],
        writes: NominationWrites,
        on_change: Callable[[ClusterEvent], None] = lambda event: None,
        *,
        foreign_nominations: bool = False,
    ) -> None:
        self._state = state
        self._queue = queue
        self._facts = facts
        self._is_ours = is_ours
        self._wake = wake
        self._now = now
        self.writes = writes
        self._on_change = on_change
        self._foreign_nominations = foreign_nominations
        self.deferred: deque[Callable[[], None]] = deque()
        """Changes that are to be made by ``run_deferred``."""
        self._is_running_deferred = False

    def defer(self, change: Callable[[], None]) -> None:
        """Change the cluster state when the present event, or decision, is over."""
        self.deferred.append(change)
        self._wake()

    def run_deferred(self) -> None:
        """Make the deferred changes; to be called where neither an event nor a decision is half done."""
        if self._is_running_deferred:
            return
        self._is_running_deferred = True
        try:
            while self.deferred:
                self.deferred.popleft()()
        finally:
            self._is_running_deferred = False

    def set_pod(self, pod: Pod) -> None:
        """A pod is new or has changed. Pods that have finished are not passed here: their end is a deletion."""
        if pod.spec.node_name:
            self._assigned(pod)
        elif pod.metadata.deletion_timestamp is None and self._is_ours(pod.spec.scheduler_name):
            self._pending(pod)
        else:
            self._unassigned(pod)
        if self.deferred:
            self.run_deferred()

    def remove_pod(self, pod: Pod) -> None:
        """A pod was deleted or has finished."""
        uid = pod.metadata.uid
        self._mark_time()
        self._queue.remove(uid)
        self.writes.drop(uid)
        self._release(uid)
        self._stop_waiting(uid, "the pod was deleted")
        removed = self._state.remove_pod(uid)
        self._state.hide_pod(uid)
        if removed is not None:
            self.announce(ClusterEvent(EventKind.POD_DELETE, removed))
            self._wake_nominated(removed)
        self._state.view.pending_evictions.seen(uid)
        if self.deferred:
            self.run_deferred()

    def _wake_nominated(self, gone: PodInfo) -> None:
        """When the last victim on a node is gone, wake the pods nominated to it: they fit now, or have to look for
        another node, for which no event would wake them."""
        view, name = self._state.view, gone.pod.spec.node_name
        row = view.columns.row_of.get(name)
        if row is None or not is_preempted(gone) or not (nominated := view.nominations.on(name)):
            return
        if not any(is_preempted(other) for other in view.pods_on[row].values()):
            self._queue.wake([pod.uid for pod in nominated], EventKind.POD_DELETE)

    def set_pseudo_pod(self, pod: Pod) -> None:
        """See Handle."""
        self._state.view.pseudo_pods.add(pod.metadata.uid)
        self.defer(partial(self.set_pod, pod))

    def remove_pseudo_pod(self, pod: Pod) -> None:
        """See Handle."""
        self.defer(partial(self.remove_pod, pod))
        self.defer(partial(self._state.view.pseudo_pods.discard, pod.metadata.uid))

    def finished(self, pod: Pod) -> None:
        """A pod that has finished was passed to plugins, or such a pod is gone: that frees no resources, but
        controllers may wait for it."""
        self._on_change(ClusterEvent(EventKind.POD_FINISHED, None, pod))

    def set_node(self, node: Node) -> None:
        self._mark_time()
        old = self._state.node(node.metadata.name)
        for kind in self._state.set_node(node):
            self.announce(ClusterEvent(kind, old, node))
        if self.deferred:
            self.run_deferred()

    def remove_node(self, name: str) -> None:
        """A node was deleted. Pods that wait at Permit for it are rejected, so that other pods do not count on them."""
        old = self._state.node(name)
        if self._state.remove_node(name):
            for waiting in self._state.view.waiting:
                if waiting.node_name == name:
                    waiting.reject("", f"node {name} was deleted")
            self.announce(ClusterEvent(EventKind.NODE_DELETE, old))
        if self.deferred:
            self.run_deferred()

    def set_node_object(self, kind: Kind[Any], old: Object | None, new: Object | None) -> None:
        """An object that bears a node's name is new, changed or gone."""
        self._mark_time()
        about = new if new is not None else old
        assert about is not None, "something has changed"
        self._state.set_node_object(kind.name, about.metadata.name, new)
        self._announce_object(kind, old, new)

    def set_object(self, kind: Kind[Any], old: Object | None, new: Object | None) -> None:
        """An object of another kind that plugins watch."""
        self._mark_time()
        about = new if new is not None else old
        assert about is not None, "something has changed"
        self._announce_object(kind, self._state.set_object(kind, about.metadata.key, new), new)

    def _announce_object(self, kind: Kind[Any], old: Object | None, new: Object | None) -> None:
        self.announce(ClusterEvent(object_event(kind, old, new), old, new))
        if self.deferred:
            self.run_deferred()

    def _mark_time(self) -> None:
        """Set the present time in the view, which event handlers may read."""
        self._state.view.now = self._now()

    def _assigned(self, pod: Pod) -> None:
        self._mark_time()
        state, uid, node_name = self._state, pod.metadata.uid, pod.spec.node_name
        placed = state.placed(uid)
        known = placed.pod if placed is not None else None
        moved = placed is None or placed.node_name != node_name
        info = self._facts.of(pod, known)
        state.set_pod(info, node_name)
        state.show_pod(info, node_name)
        queued = self._queue.remove(uid)
        if moved or queued is not None:
            self.announce(ClusterEvent(EventKind.POD_ADD, None, info))
        else:
            # Most changes of a pod on a node make no other pod schedulable, but controllers may wait for them.
            self._on_change(ClusterEvent(EventKind.POD_UPDATE, known, info))
        if known is not None and not moved:
            self._announce_change(known, info)
        if pod.metadata.deletion_timestamp is not None and _stays_for_now(pod):
            state.view.pending_evictions.seen(uid)
        if not state.view.nominations.is_empty:
            self._release(uid, kept=node_name)

    def _unassigned(self, pod: Pod) -> None:
        """A pod on no node that this scheduler does not place: another scheduler handles it, or it is being deleted."""
        uid = pod.metadata.uid
        self._queue.remove(uid)
        self._stop_waiting(uid, "the pod is being deleted")
        if self._state.shows_pods and self._state.node_of(uid) is None:
            shown = self._state.shown_pod(uid)
            self._state.show_pod(self._facts.of(pod, shown[0] if shown else None), "")
        nominated = pod.status.nominated_node_name if self._foreign_nominations else ""
        self._release(uid, kept=nominated)
        if nominated:
            self._state.view.nominations.set(self._facts.of(pod, None), nominated, foreign=True)

    def _pending(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        entry = self._queue.get(uid)
        if entry is None and self._state.node_of(uid) is not None:
            # This event is stale: the pod has been bound, and this is its state before.
            return
        info = self._facts.of(pod, entry.pod if entry else None)
        self._state.show_pod(info, "")
        if pod.status.nominated_node_name or not self._state.view.nominations.is_empty:
            self._keep_nomination(info, entry.pod.pod if entry else None)
        self._queue.add(info)
        self._wake()

    def _keep_nomination(self, pod: PodInfo, before: Pod | None) -> None:
        """Take over a change of the nomination in the pod's status, unless that is older than this scheduler's own
        decision."""
        nominations, name = self._state.view.nominations, pod.pod.status.nominated_node_name
        if name == (before.status.nominated_node_name if before is not None else "") or self.writes.is_behind(pod.pod):
            name = nominations.node_of(pod.uid)
        elif nominations.node_of(pod.uid) != name:
            self._release(pod.uid)
        if name:
            nominations.set(pod, name)

    def _stop_waiting(self, uid: str, why: str) -> None:
        """Allow the pod if it waits at Permit; it needs no permission any more."""
        waiting = self._state.view.waiting.get(uid)
        if waiting is not None:
            waiting.reject("", why)

    def _release(self, uid: str, kept: str = "") -> None:
        """Clear the pod's nomination. Unless the pod goes to ``kept``, other pods may have the free capacity."""
        nominations = self._state.view.nominations
        nominated = nominations.node_of(uid)
        if not nominated:
            return
        pod = nominations.remove(uid)
        if pod is not None and nominated != kept:
            self.announce(ClusterEvent(EventKind.POD_DELETE, pod))

    def _announce_change(self, before: PodInfo, after: PodInfo) -> None:
        if before.request is not after.request and _shrank(before.request, after.request):
            self.announce(ClusterEvent(EventKind.POD_SCALE_DOWN, before, after))
        if before.pod.metadata.labels != after.pod.metadata.labels:
            self.announce(ClusterEvent(EventKind.POD_LABEL, before, after))

    def announce(self, event: ClusterEvent) -> None:
        """Report an event that the cluster state shows already."""
        self._queue.on_event(event)
        self._on_change(event)
        self._wake()


def _stays_for_now(pod: Pod) -> bool:
    """Whether the pod is not deleted at once: its resources are not free before its grace period is over."""
    metadata = pod.metadata
    return metadata.deletion_grace_period_seconds != 0 or bool(metadata.finalizers)


def _shrank(before: PodRequest, after: PodRequest) -> bool:
    return any(after.amounts.get(name, 0) < amount for name, amount in before.amounts.items())


def add_informers(
    informers: InformerSet,
    event_handlers: EventHandlers,
    unreadable_pods: UnreadablePodHandlers,
    plugins: Iterable[Plugin],
    count_malformed: Callable[[str], None],
    steps: Sequence[PodStep] = (),
) -> None:
    """Make the informers, and have them call ``event_handlers``; objects that cannot be decoded are counted by kind.
    ``steps`` change pods before anything sees them."""

    def malformed(broken: Malformed) -> None:
        count_malformed(broken.kind.name)

    def malformed_pod(broken: Malformed) -> None:
        malformed(broken)
        unreadable_pods.on_malformed(broken)

    informers.informer(NODES, transform=node_as_seen).add_handlers(
        on_add=lambda node, initial: event_handlers.set_node(node),
        on_update=lambda old, new: event_handlers.set_node(new),
        on_delete=lambda node: event_handlers.remove_node(node.metadata.name),
        on_malformed=malformed,
    )
    pods = informers.informer(PODS, field_selector=_NOT_FINISHED, transform=partial(pod_as_seen, steps=steps))
    pods.add_handlers(
        on_add=lambda pod, initial: event_handlers.set_pod(pod),
        on_update=lambda old, new: event_handlers.set_pod(new),
        on_delete=event_handlers.remove_pod,
        on_malformed=malformed_pod,
        on_readable=unreadable_pods.on_readable,
    )
    plugins = list(plugins)
    _add_finished_pods(informers, event_handlers, plugins, malformed)
    # Objects about nodes (measurements, say) are evaluated together with the node's pods: only once, if these are all
    # listed before.
    for kind in dict.fromkeys(kind for plugin in plugins for kind in plugin.node_objects):
        of_nodes = informers.informer(kind, absent_is_empty=True, after=pods)
        _add_changes(of_nodes, partial(event_handlers.set_node_object, kind), malformed)
    watched = [(kind, *plugin.watch_scope(kind)) for plugin in plugins for kind in plugin.watched_kinds]
    for kind, namespace, field_selector in dict.fromkeys(watched):
        objects = informers.informer(kind, namespace=namespace, field_selector=field_selector, absent_is_empty=True)
        _add_changes(objects, partial(event_handlers.set_object, kind), malformed)


def _add_changes(
    informer: Informer[T], changed: Callable[[T | None, T | None], None], malformed: MalformedHandler
) -> None:
    """Have ``changed`` called with each object before and after its change."""
    informer.add_handlers(
        on_add=lambda obj, initial: changed(None, obj),
        on_update=changed,
        on_delete=lambda obj: changed(obj, None),
        on_malformed=malformed,
    )


def _add_finished_pods(
    informers: InformerSet, event_handlers: EventHandlers, plugins: Iterable[Plugin], malformed: MalformedHandler
) -> None:
    """Watch finished pods separately, if any plugin handles them: in most clusters there are many, and nearly all of
    them matter to no plugin."""
    handlers = {plugin.name: plugin for plugin in reversed(list(plugins)) if isinstance(plugin, FinishedPodHandler)}
    if not handlers:
        return

    def is_read(pod: Pod) -> bool:
        return any(handler.reads_finished(pod) for handler in handlers.values())

    def changed(old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            if pod is None or not is_read(pod):
                continue
            for handler in handlers.values():
                if handler.reads_finished(pod):
                    (handler.on_finished if pod is new else handler.on_finished_gone)(pod)
            event_handlers.finished(pod)

    finished = informers.informer(
        PODS, field_selector=_FINISHED, transform=lambda pod: finished_pod_as_seen(pod, is_read)
    )
    _add_changes(finished, changed, malformed)
