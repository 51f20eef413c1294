"""The allocation ledger: what pods on nodes hold beyond amounts, such as CPU sets, device minors or a reservation.

A plugin computes what a pod would get (``allocate``) and what an allocation means for its columns (``on_allocated``,
``on_released``; see AllocatorPlugin). The ledger records which pod holds what. It ensures that each allocation counts
once while its pod is on an existing node, and is released once: when the pod is gone, its binding has failed, or its
node is removed. A simulation takes pods off and puts them back with the very same allocations, whether the API knows of
them yet or not.

All instances of a plugin, one for each profile, share the entries of their name: what a pod of one profile holds is
taken for the pods of all.

Where a pod cannot be read, nobody knows how much it holds. What it may hold is closed to further pods: a type of device
of a node, its CPUs, a whole node. A closure lasts until the pod can be read, or is gone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from koordinator.base.groups import Groups
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.pod_info import PodInfo

A = TypeVar("A")
_TOLD: Final = 4096
_SHOWN: Final = 100


class Closure(NamedTuple):
    """Why something is closed."""

    pod: str
    """``namespace/name``."""
    fault: str
    """The field of the pod, its value, and what is allowed."""


class Closures(Groups[str, str, Closure]):
    """Subject -> holder, which is what identifies the pod -> closure. Only what is closed is in it, so that asking
    whether anything is, which nearly always nothing is, costs no call."""

    def open(self, holder: str) -> list[str]:
        """The holder closes nothing any more; returns what it had closed."""
        found = [subject for subject, closures in self.items() if holder in closures]
        for subject in found:
            self.take(subject, holder)
        return found

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


Allocation = Any
"""A value that only the plugin interprets, not None and not a Reason. Equal values are the same allocation."""


class Nothing(Enum):
    """What ``AllocatorPlugin.restore`` returns for a pod that, by its annotations, holds nothing."""

    NOTHING = 0


NOTHING: Final = Nothing.NOTHING


class Unknown(NamedTuple):
    """What ``AllocatorPlugin.restore`` returns for a pod that holds something by a record that cannot be read. The
    plugin closes what it may hold (see ``Closures``) as long as that counts on a row."""

    fault: str
    """The field, its value, and what is allowed."""


class NodeAllocations(ABC, Generic[A]):
    """What pods hold of one node, as a plugin counts it. Closed is what a pod holds by a record that cannot be read, or
    that names what the node does not have: then it holds something else, and nobody knows what."""

    def __init__(self) -> None:
        self.held: dict[str, A] = {}
        """By uid of the pod."""
        self.holders: dict[str, PodInfo] = {}
        """These pods, by uid."""
        self.closed = Closures()
        """By uid of the pod."""

    @abstractmethod
    def subjects(self, pod: PodInfo) -> Iterable[str]:
        """What may be closed because of the pod."""

    @abstractmethod
    def missing(self, pod: PodInfo, allocation: A) -> Iterable[tuple[str, str]]:
        """What of the allocation the node does not have: pairs of a subject and the fault of the pod's record."""

    @abstractmethod
    def count(self, allocation: A, sign: int) -> None:
        """Add the allocation (``sign`` 1) to what is taken, or subtract it (-1)."""

    def hold(self, pod: PodInfo, allocation: A | Unknown) -> None:
        """Set the pod's allocation, in place of an earlier one; may be called again with the same one."""
        self.release(pod.uid)
        if isinstance(allocation, Unknown):
            for subject in self.subjects(pod):
                self.closed.put(subject, pod.uid, Closure(pod.key, allocation.fault))
            return
        self.held[pod.uid], self.holders[pod.uid] = allocation, pod
        self.count(allocation, 1)
        self._close_missing(pod, allocation)

    def release(self, uid: str) -> None:
        """Remove the pod's allocation; does nothing if it has none."""
        allocation = self.held.pop(uid, None)
        if allocation is not None:
            del self.holders[uid]
            self.count(allocation, -1)
        if self.closed:
            self.closed.open(uid)

    def check(self) -> None:
        """What the node has is new or changed: compare it with the records of all pods."""
        for uid, allocation in self.held.items():
            if self.closed:
                self.closed.open(uid)
            self._close_missing(self.holders[uid], allocation)

    def _close_missing(self, pod: PodInfo, allocation: A) -> None:
        for subject, fault in self.missing(pod, allocation):
            self.closed.put(subject, pod.uid, Closure(pod.key, fault))


_NOTHING: Final[Mapping[str, Allocation]] = {}


class AllocationLedger:
    """Allocations by pod and plugin. Plugins read it; the cluster state writes it."""

    def __init__(self) -> None:
        self.of_pod: dict[str, dict[str, Allocation]] = {}
        """By uid; only the pods that hold something."""
        self._listeners: dict[str, list[Callable[..., Any]]] = {}
        self.has_plugins = False
        """Whether any plugin allocates; otherwise there is nothing to restore."""

    def register(self, plugin: str, listener: Callable[..., Any]) -> None:
        """``listener(point, *arguments)`` calls a method of an instance of the plugin; it returns what that method
        returns, or None if the instance fails; the listener reports that failure, not the ledger."""
        self._listeners.setdefault(plugin, []).append(listener)
        self.has_plugins = True

    def of(self, plugin: str, uid: str) -> Allocation | None:
        """The pod's allocation of the plugin; None if there is none, or if it is unknown."""
        held = self.of_pod.get(uid)
        if held is None:
            return None
        found = held.get(plugin)
        return None if found.__class__ is Unknown else found

    def entry(self, plugin: str, uid: str) -> Allocation | Unknown | None:
        """What ``on_allocated`` was called with for the pod; None if there is nothing that counts."""
        return self.of_pod.get(uid, _NOTHING).get(plugin)

    # For the cluster state.

    def take(self, row: int, pod: PodInfo, plugin: str, allocation: Allocation) -> None:
        """Record that the pod, which is on ``row``, holds ``allocation``, in place of its previous allocation of the
        plugin."""
        self.release(row, pod, plugin)
        self.of_pod.setdefault(pod.uid, {})[plugin] = allocation
        self._notify("on_allocated", row, pod, plugin, allocation)

    def release(self, row: int, pod: PodInfo, plugin: str) -> None:
        """Release the plugin's allocation of the pod, which is on ``row``."""
        held = self.of_pod.get(pod.uid, {})
        allocation = held.pop(plugin, None)
        if allocation is None:
            return
        if not held:
            del self.of_pod[pod.uid]
        self._notify("on_released", row, pod, plugin, allocation)

    def attach(self, row: int, pod: PodInfo) -> None:
        """Count the pod on ``row``, with all that it holds."""
        for plugin, allocation in list(self.of_pod.get(pod.uid, _NOTHING).items()):
            self._notify("on_allocated", row, pod, plugin, allocation)

    def detach(self, row: int, pod: PodInfo) -> None:
        """Stop counting the pod on ``row``; its allocations stay in the ledger, since its node may come back."""
        for plugin, allocation in reversed(list(self.of_pod.get(pod.uid, _NOTHING).items())):
            self._notify("on_released", row, pod, plugin, allocation)

    def forget(self, uid: str) -> Mapping[str, Allocation]:
        """Remove a pod that does not count anywhere and is gone; returns what it held."""
        return self.of_pod.pop(uid, _NOTHING)

    def remember(self, uid: str, held: Mapping[str, Allocation]) -> None:
        """Undo ``forget``."""
        if held:
            self.of_pod[uid] = dict(held)

    def restore(self, row: int, pod: PodInfo, node: NodeReference, plugin: str = "") -> None:
        """Restore the pod's allocations, those of all plugins or of one, from its annotations. Where these say nothing,
        or cannot be read, the recorded allocation stays: a plugin may have made it a moment ago."""
        for name, listeners in self._listeners.items():
            if plugin and name != plugin:
                continue
            allocation = listeners[0]("restore", pod, node)
            if allocation is NOTHING:
                self.release(row, pod, name)
            elif allocation.__class__ is Unknown and self.of(name, pod.uid) is not None:
                continue
            elif allocation is not None and allocation != self.entry(name, pod.uid):
                self.take(row, pod, name, allocation)

    def _notify(self, point: str, row: int, pod: PodInfo, plugin: str, allocation: Allocation) -> None:
        for listener in self._listeners.get(plugin, ()):
            listener(point, row, pod, allocation)
