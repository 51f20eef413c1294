"""What has become of every pod, as a watcher outside the scheduler sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import PodCondition
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import Client, Malformed, WatchEvent

Key = tuple[str, str]
"""(namespace, name)"""


class _Spec(WireStruct):
    node_name: str = ""


class _Status(WireStruct):
    conditions: list[PodCondition] = []


class ObservedPod(Object):
    """As much of a pod as is looked at here: decoding all of it would take CPU from what is measured."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


OBSERVED_PODS: Final = Kind("", "v1", "pods", "Pod", ObservedPod)


@dataclass(frozen=True, slots=True)
class Binding:
    """When a pod was first seen on a node, and which."""

    moment: float
    node: str
    labels: Mapping[str, str]


@dataclass(slots=True, eq=False)
class _Waiter:
    missing: set[Key]
    attempted_is_enough: bool
    done: asyncio.Event = field(default_factory=asyncio.Event)


def selected(labels: Mapping[str, str], selector: Mapping[str, str] | None) -> bool:
    """Whether the labels are those that an operation's ``labelSelector`` requests."""
    return all(labels.get(name) == value for name, value in (selector or {}).items())


class PodTracker:
    """Follows the pods of all namespaces from an empty cluster on."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._waiters: list[_Waiter] = []
        self._not_scheduled: dict[Key, str] = {}
        self.bindings: dict[Key, Binding] = {}
        self.moved: set[Key] = set()
        self.deleted: set[Key] = set()

    async def follow(self, client: Client, resource_version: str) -> None:
        """Watch until cancelled."""
        while True:
            async for event in client.watch(OBSERVED_PODS, resource_version=resource_version):
                resource_version = event.resource_version
                self.on_event(event)

    def on_event(self, event: WatchEvent[ObservedPod]) -> None:
        pod = event.object
        if pod is None or isinstance(pod, Malformed):
            return
        key = (pod.metadata.namespace, pod.metadata.name)
        if event.type == "DELETED":
            self.deleted.add(key)
            self._settle(key, attempted=False)
        elif pod.spec.node_name:
            self._on_bound(key, pod)
        else:
            self._on_pending(key, pod)

    async def until_bound(self, keys: Iterable[Key], limit: float) -> None:
        """Until each of the pods has got a node or is gone. Raises KoordinatorError after ``limit`` seconds."""
        await self._wait(keys, limit, attempted_is_enough=False)

    async def until_attempted(self, keys: Iterable[Key], limit: float) -> None:
        """Like ``until_bound``; that it has been found to fit nowhere or is gated is enough."""
        await self._wait(keys, limit, attempted_is_enough=True)

    async def _wait(self, keys: Iterable[Key], limit: float, *, attempted_is_enough: bool) -> None:
        settled = [self.bindings, self.deleted, *([self._not_scheduled] if attempted_is_enough else [])]
        missing = {key for key in keys if not any(key in kind for kind in settled)}
        if not missing:
            return
        waiter = _Waiter(missing, attempted_is_enough)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(limit):
                await waiter.done.wait()
        except TimeoutError as error:
            raise KoordinatorError(self._error(waiter, limit)) from error
        finally:
            self._waiters.remove(waiter)

    def _error(self, waiter: _Waiter, limit: float) -> str:
        namespace, name = key = min(waiter.missing)
        what = "attempted" if waiter.attempted_is_enough else "bound"
        why = self._not_scheduled.get(key, "the scheduler has said nothing about it")
        return f"{len(waiter.missing)} pods were not {what} in {limit:.0f} s, such as {namespace}/{name}: {why}"

    def _on_bound(self, key: Key, pod: ObservedPod) -> None:
        binding = self.bindings.setdefault(key, Binding(self._now(), pod.spec.node_name, pod.metadata.labels))
        if binding.node != pod.spec.node_name:
            self.moved.add(key)
        self._not_scheduled.pop(key, None)
        self._settle(key, attempted=False)

    def _on_pending(self, key: Key, pod: ObservedPod) -> None:
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled":
                self._not_scheduled[key] = f"{condition.reason}: {condition.message}"
                self._settle(key, attempted=True)

    def _settle(self, key: Key, *, attempted: bool) -> None:
        for waiter in self._waiters:
            if attempted and not waiter.attempted_is_enough:
                continue
            waiter.missing.discard(key)
            if not waiter.missing:
                waiter.done.set()
