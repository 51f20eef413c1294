"""From the API's events to the cluster state and the queue: what each change of an object means for scheduling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_event
from koordinator.scheduler.engine.pod_info import PodInfo, PodRequest
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue

MakePodInfo = Callable[[Pod], PodInfo]
_TOPOLOGY: Final = "topology.kubernetes.io/"


class Feed:
    """``is_ours`` tells by scheduler name which pods to queue; ``wake`` is called when there may be work. With
    ``foreign_nominations``, nodes that other schedulers have promised to their pods are kept for these."""

    def __init__(
        self,
        state: ClusterState,
        queue: SchedulingQueue,
        make_pod: MakePodInfo,
        is_ours: Callable[[str], bool],
        wake: Callable[[], None],
        now: Callable[[], datetime],
        *,
        foreign_nominations: bool = False,
    ) -> None:
        self._state = state
        self._queue = queue
        self._make_pod = make_pod
        self._is_ours = is_ours
        self._wake = wake
        self._now = now
        self._foreign_nominations = foreign_nominations

    def set_pod(self, pod: Pod) -> None:
        """A pod is new or has changed. Pods that have finished are not shown to us: their end is a deletion."""
        if pod.spec.node_name:
            self._mark_time()
            self._assigned(pod)
        elif pod.metadata.deletion_timestamp is None and self._is_ours(pod.spec.scheduler_name):
            self._pending(pod)
            return
        else:
            self._queue.remove(pod.metadata.uid)
        self._state.view.nominations.remove(pod.metadata.uid)
        if self._foreign_nominations and pod.status.nominated_node_name and not pod.spec.node_name:
            self._state.view.nominations.set(self._make_pod(pod), pod.status.nominated_node_name, foreign=True)

    def remove_pod(self, pod: Pod) -> None:
        """A pod was deleted or has finished."""
        uid = pod.metadata.uid
        self._mark_time()
        self._queue.remove(uid)
        self._state.view.nominations.remove(uid)
        waiting = self._state.view.waiting.get(uid)
        if waiting is not None:
            waiting.reject("", "the pod was deleted")
        removed = self._state.remove_pod(uid)
        if removed is not None:
            self._announce(ClusterEvent(EventKind.POD_DELETE, removed))

    def set_node(self, node: Node) -> None:
        self._mark_time()
        old = self._state.node(node.metadata.name)
        for kind in self._state.set_node(node):
            self._announce(ClusterEvent(kind, old, node))

    def remove_node(self, name: str) -> None:
        old = self._state.node(name)
        if self._state.remove_node(name):
            self._announce(ClusterEvent(EventKind.NODE_DELETE, old))

    def set_node_object(self, kind: Kind[Any], name: str, old: Object | None, new: Object | None) -> None:
        """An object that bears a node's name is new, changed or gone."""
        self._mark_time()
        self._state.set_node_object(kind.name, name, new)
        self._announce(ClusterEvent(object_event(kind, old, new), old, new))

    def set_object(self, kind: Kind[Any], obj: Object, *, gone: bool = False) -> None:
        """An object of another kind that plugins watch."""
        self._mark_time()
        new = None if gone else obj
        old = self._state.set_object(kind, obj.metadata.key, new)
        self._announce(ClusterEvent(object_event(kind, old, new), old, new))

    def _mark_time(self) -> None:
        """Observers may ask when it is that something happens."""
        self._state.view.now = self._now()

    def _assigned(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        known = self._state.pod(uid)
        moved = self._state.node_of(uid) != pod.spec.node_name
        info = self._info(pod, known)
        self._state.set_pod(info, pod.spec.node_name)
        queued = self._queue.remove(uid)
        if moved or queued is not None:
            self._announce(ClusterEvent(EventKind.POD_ADD, None, info))
        if known is not None and not moved:
            self._announce_change(known, info)

    def _pending(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        entry = self._queue.get(uid)
        if entry is None and self._state.node_of(uid) is not None:
            # We know better: the pod has been bound, and this is how it looked before.
            return
        info = self._info(pod, entry.pod if entry else None)
        self._keep_nomination(info, entry.pod.pod if entry else None)
        self._queue.add(info)
        self._wake()

    def _keep_nomination(self, pod: PodInfo, before: Pod | None) -> None:
        """What the pod's status says of its nomination counts, unless that is older than what we have decided."""
        nominations, name = self._state.view.nominations, pod.pod.status.nominated_node_name
        if name:
            nominations.set(pod, name)
        elif before is not None and before.status.nominated_node_name:
            nominations.remove(pod.uid)
        elif known := nominations.node_of(pod.uid):
            nominations.set(pod, known)

    def _info(self, pod: Pod, known: PodInfo | None) -> PodInfo:
        """The derived facts anew, but what a pod requests only when something that it follows from has changed."""
        if known is None or known.uid != pod.metadata.uid or _resources_differ(known.pod, pod):
            return self._make_pod(pod)
        return PodInfo(
            pod=pod,
            request=known.request,
            key=known.key,
            uid=known.uid,
            priority=known.priority,
            memo=known.memo if _same_to_plugins(known.pod, pod) else {},
        )

    def _announce_change(self, before: PodInfo, after: PodInfo) -> None:
        if before.request is not after.request and _shrank(before.request, after.request):
            self._announce(ClusterEvent(EventKind.POD_SCALE_DOWN, before, after))
        if before.pod.metadata.labels != after.pod.metadata.labels:
            self._announce(ClusterEvent(EventKind.POD_LABEL, before, after))

    def _announce(self, event: ClusterEvent) -> None:
        self._queue.on_event(event)
        self._wake()


def _resources_differ(old: Pod, new: Pod) -> bool:
    """Binding a pod changes ``nodeName`` alone; what the kubelet has granted to it counts in a resize."""
    before, after = old.spec, new.spec
    if before is not after and (
        before.containers != after.containers
        or before.init_containers != after.init_containers
        or before.resources != after.resources
        or before.overhead != after.overhead
        or before.priority != after.priority
    ):
        return True
    return _granted(old) != _granted(new)


def _same_to_plugins(old: Pod, new: Pod) -> bool:
    before, after = old.metadata, new.metadata
    if before.annotations != after.annotations or not _same_own_labels(before.labels, after.labels):
        return False
    if old.spec.node_name == new.spec.node_name:
        return old.spec == new.spec
    return msgspec.structs.replace(old.spec, node_name=new.spec.node_name) == new.spec


def _same_own_labels(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """The API server adds the topology labels of its node to a pod that is being bound."""
    if before == after:
        return True
    return before == {key: value for key, value in after.items() if not key.startswith(_TOPOLOGY) or key in before}


def _granted(pod: Pod) -> tuple[object, object]:
    """What containers have been given, and what became of a wish to resize them."""
    status = pod.status
    containers = [
        (container.name, container.resources, container.allocated_resources)
        for container in (*status.container_statuses, *status.init_container_statuses)
    ]
    conditions = [
        (condition.type, condition.status, condition.reason)
        for condition in status.conditions
        if condition.type == "PodResizePending"
    ]
    return containers, conditions


def _shrank(before: PodRequest, after: PodRequest) -> bool:
    return any(after.amounts.get(column, 0) < amount for column, amount in before.amounts.items())
