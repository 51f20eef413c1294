"""What is closed to further pods, because nobody knows how much of it a pod holds that cannot be read.

A closure has a subject: a type of device of a node, its CPUs, a whole node. It lasts until the pod can be read, or is
gone. The authors of such pods are told, and so are those who wait for what these pods hold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from koordinator.api.annotations import RESERVATION_NAME
from koordinator.api.kinds import PODS, RESERVATIONS, Kind
from koordinator.scheduler.engine.allocations import NOTHING, Allocation, Nothing
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.handle import HandledPlugin
from koordinator.scheduler.engine.pod_info import PodInfo

_TOLD: Final = 4096
_SHOWN: Final = 100


class Closure(NamedTuple):
    """Why something is closed."""

    pod: str
    """``namespace/name``."""
    fault: str
    """The field of the pod, its value, and what is allowed."""


_NONE: Final[Mapping[str, Closure]] = {}


class Closures(dict[str, dict[str, Closure]]):
    """Subject -> holder, which is what identifies the pod -> closure. Only what is closed is in it, so that asking
    whether anything is, which nearly always nothing is, costs no call."""

    def close(self, subject: str, holder: str, closure: Closure) -> None:
        """Close the subject because of the holder, in place of what was known of it there."""
        self.setdefault(subject, {})[holder] = closure

    def open(self, holder: str) -> list[str]:
        """The holder closes nothing any more; returns what it had closed."""
        found = [subject for subject, closures in self.items() if closures.pop(holder, None)]
        for subject in found:
            if not self[subject]:
                del self[subject]
        return found

    def on(self, subject: str) -> Mapping[str, Closure]:
        """The closures of one subject, by holder."""
        return self.get(subject, _NONE)

    @property
    def of_holders(self) -> Mapping[str, Closure]:
        """One closure of each holder."""
        return {holder: each for closures in self.values() for holder, each in closures.items()}


def closed_by(closures: Mapping[str, Closure]) -> dict[str, Any]:
    """The member of explanations that names the pods; none if there is no closure."""
    found = [{"pod": each.pod, "reason": each.fault} for _, each in sorted(closures.items())]
    return {"closedBy": found} if found else {}


def unusable_annotation(key: str, text: str, why: str, allowed: str) -> str:
    """The fault of a pod whose annotation cannot be read."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"metadata.annotations[{key}]: {shown!r} is not usable: {why}; allowed is {allowed}"


class ToldFaults:
    """The faults of which the authors of pods have been told, by uid of the pod; only so many of the last ones."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, str] = OrderedDict()

    def is_news(self, uid: str, fault: str) -> bool:
        """Whether the author has not been told of it; from now on, the author has."""
        if self._told.get(uid) == fault:
            return False
        self._told[uid] = fault
        self._told.move_to_end(uid)
        if len(self._told) > _TOLD:
            self._told.popitem(last=False)
        return True

    def forget(self, uid: str) -> None:
        """The pod has no fault any more."""
        self._told.pop(uid, None)


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
