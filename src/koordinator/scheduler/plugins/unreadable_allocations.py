"""Tells the authors of pods whose allocation records cannot be read, and those who wait for what these pods hold."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.annotations import RESERVATION_NAME
from koordinator.api.kinds import PODS, RESERVATIONS, Kind
from koordinator.scheduler.engine.allocations import NOTHING, Allocation, Nothing
from koordinator.scheduler.engine.closures import Closures, ToldFaults
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.handle import HandledPlugin
from koordinator.scheduler.engine.pod_info import PodInfo

REASON: Final = "UnreadableAllocation"


class UnreadableAllocations:
    """Of one plugin, in all profiles: each author is told once."""

    def __init__(self, plugin: HandledPlugin) -> None:
        self._plugin = plugin
        self._told: ToldFaults = plugin.view.shared.setdefault(f"{plugin.name}/{REASON}", ToldFaults())

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
            self._plugin.handle.object_event(kind, obj, "Warning", REASON, "Scheduling", fault)

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
