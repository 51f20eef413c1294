"""Running pods that cannot be read, in whole or in what they hold: the authors are told, and nothing more is placed
where such a pod may hold it.

A node with a running pod that cannot be decoded takes no further pod, since nobody knows how much of it is free
(UnreadablePods). No profile lists that plugin. It comes before the filters of all profiles while there are such pods,
and costs nothing while there are none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api.annotations import RESERVATION_NAME
from koordinator.api.kinds import PODS, RESERVATIONS, Kind
from koordinator.scheduler.engine.allocations import (
    NOTHING,
    Allocation,
    Closure,
    Closures,
    Nothing,
    ToldFaults,
    closed_by,
)
from koordinator.scheduler.engine.columns import AnyAspect, Aspect, Ints, NamedAspect, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import FilterPlugin, Reason
from koordinator.scheduler.engine.handle import HandledPlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack

UNREADABLE_ALLOCATION: Final = "UnreadableAllocation"


class UnreadableAllocations:
    """Of one plugin, in all profiles: each author is told once."""

    def __init__(self, plugin: HandledPlugin) -> None:
        self._plugin = plugin
        self._told = plugin.view.share(f"{plugin.name}/{UNREADABLE_ALLOCATION}", ToldFaults)

    def tell(self, pod: PodInfo, fault: str) -> None:
        """Record an event about the pod, or about the Reservation that it stands for."""
        if not self._told.is_news(pod.uid, fault):
            return
        kind: Kind[Any] = PODS
        obj: Any = pod.pod
        if pod.uid in self._plugin.view.pseudo_pods:
            name = pod.pod.metadata.annotations.get(RESERVATION_NAME, "")
            kind, obj = RESERVATIONS, self._plugin.view.objects_of(RESERVATIONS).get(name)
        if obj is not None:
            self._plugin.handle.object_event(kind, obj, "Warning", UNREADABLE_ALLOCATION, "Scheduling", fault)

    def tell_of(self, closures: Closures, row: int) -> None:
        """Tell the authors of the pods on the row of which ``closures`` are."""
        pods = self._plugin.view.pods_on.get(row, {})
        for uid, closure in closures.of_holders.items():
            if uid in pods:
                self.tell(pods[uid], closure.fault)

    def restored(self, pod: PodInfo, found: Allocation | None, closures: Closures) -> Allocation | Nothing | None:
        """The result of ``restore`` on a row with ``closures``, if ``found`` has been read from the pod's record, None
        for none. Whoever waits for what the pod has closed is tried again if that is news."""
        if pod.uid not in closures.of_holders:
            return found
        if self._plugin.view.allocations.entry(self._plugin.name, pod.uid) != found:
            self._told.forget(pod.uid)
            self._plugin.handle.announce(ClusterEvent(EventKind.POD_READABLE, pod, pod))
        return NOTHING if found is None else found


NAME: Final = "UnreadablePods"
_CHANGED: Final = NamedAspect(NAME, is_static=True)
_CLOSED: Final = Reason("node(s) had a running pod that cannot be decoded", unresolvable=True)


class UnreadablePods(FilterPlugin, Explainer):
    name = NAME
    reads: ClassVar[tuple[AnyAspect, ...]] = (Aspect.NODE, _CHANGED)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._closed = Closures()
        """By name of the node, known or not, and key of the pod."""
        self._changed = view.columns.aspect(_CHANGED)

    def close(self, node_name: str, closure: Closure) -> None:
        """Close the node because of the pod, which closes no other one any more."""
        self.open(closure.pod)
        self._closed.close(node_name, closure.pod, closure)
        self._touch(node_name)

    def open(self, key: str) -> bool:
        """The pod closes no node any more; returns whether it did."""
        found = self._closed.open(key)
        for name in found:
            self._touch(name)
        return bool(found)

    def _touch(self, node_name: str) -> None:
        columns = self.view.columns
        if not self._closed or self not in self.view.engine_filters:
            self.view.engine_filters = (self,) if self._closed else ()
        row = columns.row_of.get(node_name)
        if row is not None:
            columns.touch(row, self._changed)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        names = self.view.columns.names
        return np.array([names[row] in self._closed for row in rows.tolist()], dtype=np.int64)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (_CLOSED,)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_READABLE, EventKind.NODE_ADD})

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        closures = self._closed.on(self.view.columns.names[row]).values()
        return [Lack(f"what pod {each.pod} takes cannot be known: {each.fault}") for each in closures]

    def node_facts(self, row: int) -> Mapping[str, Any] | None:
        return closed_by(self._closed.on(self.view.columns.names[row])) or None
