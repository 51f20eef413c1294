"""What may never be seen on an API server, looked at after each change of a pod: anything given out twice."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from koordinator.api.annotations import DEVICE_ALLOCATED, RESERVATION_ALLOCATED, RESOURCE_STATUS
from koordinator.api.cpu_list import parse_cpu_list
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_finished

_WHOLE: Final = 100
"""Percent of a GPU."""
_CORE: Final = "koordinator.sh/gpu-core"
_COUNTED: Final = ("cpu", "memory", "pods")


class Bookings:
    """Notified of every version of every pod, it keeps what is wrong in ``faults``."""

    def __init__(self, node: Callable[[str], Node | None]) -> None:
        self._node = node
        self._placed: dict[str, str] = {}
        self._on: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self.bound = 0
        """How many pods have got a node."""
        self.faults: Counter[str] = Counter()
        """Sentences, and how often."""

    def seen(self, pod: Pod) -> None:
        uid, target = pod.metadata.uid, pod.spec.node_name
        if not target:
            return
        before = self._placed.setdefault(uid, target)
        if before != target:
            self.faults[f"{pod.metadata.key} was bound to {before} and then to {target}"] += 1
        if is_finished(pod):
            self._on[target].pop(uid, None)
            return
        is_new = uid not in self._on[target]
        self._on[target][uid] = pod
        if is_new:
            self.bound += 1
            self._look(target)

    def gone(self, pod: Pod) -> None:
        self._placed.pop(pod.metadata.uid, None)
        self._on[pod.spec.node_name].pop(pod.metadata.uid, None)

    def _look(self, name: str) -> None:
        pods = self._on[name].values()
        for what, count in (*_cpus(pods), *_gpus(pods), *_reservations(pods)):
            if count > 1:
                self.faults[f"{name}: {what} is given out {count:g} times"] += 1
        node = self._node(name)
        if node is None:
            return
        for resource, amount in _requested(pods).items():
            allocatable = node.status.allocatable.get(resource)
            if allocatable is not None and amount > allocatable.nanos:
                self.faults[f"{name}: pods request more {resource} than there is"] += 1


def _requested(pods: Iterable[Pod]) -> Counter[str]:
    found: Counter[str] = Counter()
    for pod in pods:
        found["pods"] += 1_000_000_000
        for container in pod.spec.containers:
            for resource, amount in container.resources.requests.items():
                if resource in _COUNTED:
                    found[resource] += amount.nanos
    return found


def _cpus(pods: Iterable[Pod]) -> Iterable[tuple[str, float]]:
    found: Counter[int] = Counter()
    for pod in pods:
        text = json.loads(pod.metadata.annotations.get(RESOURCE_STATUS) or "{}").get("cpuset", "")
        found.update(parse_cpu_list(text))
    return ((f"CPU {number}", count) for number, count in found.items())


def _gpus(pods: Iterable[Pod]) -> Iterable[tuple[str, float]]:
    found: Counter[int] = Counter()
    for pod in pods:
        for each in json.loads(pod.metadata.annotations.get(DEVICE_ALLOCATED) or "{}").get("gpu", ()):
            found[each["minor"]] += int(each["resources"].get(_CORE, 0))
    return ((f"GPU {minor}", percent / _WHOLE) for minor, percent in found.items())


def _reservations(pods: Iterable[Pod]) -> Iterable[tuple[str, float]]:
    """Those of a soak are used up by one pod."""
    found: Counter[str] = Counter()
    for pod in pods:
        if (text := pod.metadata.annotations.get(RESERVATION_ALLOCATED)) is not None:
            found[json.loads(text)["name"]] += 1
    return ((f"Reservation {name}", count) for name, count in found.items())
