"""The allocation ledger: what pods on nodes hold beyond amounts, such as CPU sets, device minors or a reservation.

A plugin says what a pod would get (``allocate``) and what an allocation means for its columns (``on_allocated``,
``on_released``; see AllocatorPlugin). The ledger remembers who holds what. It sees to it that each allocation counts
once while its pod is on a node that exists, and is released once: when the pod is gone, its binding has failed, or its
node is removed. A simulation takes pods off and puts them back with the very same allocations, whether the API knows of
them yet or not.

All instances of a plugin, one for each profile, share the entries of their name: what a pod of one profile holds is
taken for the pods of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.pod_info import PodInfo

Allocation = Any
"""A value of the plugin's own, not None and not a Reason. Equal ones are the same allocation."""
_NOTHING: Final[Mapping[str, Allocation]] = {}


class AllocationLedger:
    """Who holds what, by pod and plugin. Plugins read it; the cluster state writes it."""

    def __init__(self) -> None:
        self._of_pod: dict[str, dict[str, Allocation]] = {}
        self._listeners: dict[str, list[Callable[..., Any]]] = {}
        self.has_plugins = False
        """Whether any plugin allocates; otherwise there is nothing to attach, detach or restore."""

    def register(self, plugin: str, listener: Callable[..., Any]) -> None:
        """``listener(point, *arguments)`` calls a method of an instance of the plugin; it returns what that returns, or
        None if the instance fails, which is not for the ledger to deal with."""
        self._listeners.setdefault(plugin, []).append(listener)
        self.has_plugins = True

    def __len__(self) -> int:
        """How many pods hold something."""
        return len(self._of_pod)

    def of(self, plugin: str, uid: str) -> Allocation | None:
        """What the pod holds of the plugin."""
        return self._of_pod.get(uid, _NOTHING).get(plugin)

    # For the cluster state.

    def take(self, row: int, pod: PodInfo, plugin: str, allocation: Allocation) -> None:
        """The pod, which is on ``row``, holds this from now on, instead of what it may have held of the plugin."""
        self.release(row, pod, plugin)
        self._of_pod.setdefault(pod.uid, {})[plugin] = allocation
        self._notify("on_allocated", row, pod, plugin, allocation)

    def release(self, row: int, pod: PodInfo, plugin: str) -> None:
        """The pod, which is on ``row``, holds nothing of the plugin any more."""
        held = self._of_pod.get(pod.uid, {})
        allocation = held.pop(plugin, None)
        if allocation is None:
            return
        if not held:
            del self._of_pod[pod.uid]
        self._notify("on_released", row, pod, plugin, allocation)

    def attach(self, row: int, pod: PodInfo) -> None:
        """The pod counts on ``row`` from now on, with all that it holds."""
        for plugin, allocation in list(self._of_pod.get(pod.uid, _NOTHING).items()):
            self._notify("on_allocated", row, pod, plugin, allocation)

    def detach(self, row: int, pod: PodInfo) -> None:
        """The pod does not count on ``row`` any more, but holds what it holds: its node may come back."""
        for plugin, allocation in reversed(list(self._of_pod.get(pod.uid, _NOTHING).items())):
            self._notify("on_released", row, pod, plugin, allocation)

    def forget(self, uid: str) -> Mapping[str, Allocation]:
        """The pod, which does not count anywhere, is gone; returns what it held."""
        return self._of_pod.pop(uid, _NOTHING)

    def remember(self, uid: str, held: Mapping[str, Allocation]) -> None:
        """Undo ``forget``."""
        if held:
            self._of_pod[uid] = dict(held)

    def restore(self, row: int, pod: PodInfo, node: NodeReference) -> None:
        """Read what the pod holds by its annotations. Where they say nothing, what is known stays: a plugin may have
        allocated it a moment ago."""
        for name, listeners in self._listeners.items():
            allocation = listeners[0]("restore", pod, node)
            if allocation is not None and allocation != self.of(name, pod.uid):
                self.take(row, pod, name, allocation)

    def _notify(self, point: str, row: int, pod: PodInfo, plugin: str, allocation: Allocation) -> None:
        for listener in self._listeners.get(plugin, ()):
            listener(point, row, pod, allocation)
