"""Pods that are assumed on a node and wait for permission to be bound: a gang waits for its last member.

Waiting ends in exactly one of three ways: every plugin that delayed the pod allows it, one rejects it, or one of their
timeouts expires. The binding of the pod is notified later, from the scheduling loop: a plugin that rejects a thousand
pods because one of them has failed is not called again in the middle of that.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.scheduler.engine.pod_info import PodInfo

_LONGEST_WAIT: Final = 900.0


@dataclass(frozen=True, slots=True)
class PermitStatus:
    """How waiting ended; ``plugin`` and ``message`` are those of the rejection."""

    allowed: bool
    plugin: str = ""
    message: str = ""


@dataclass(slots=True)
class WaitingPod:
    """``deadlines``: the plugins that still delay the pod, each with the time of its timeout in seconds of the
    clock."""

    pod: PodInfo
    node_name: str
    deadlines: dict[str, float]
    on_status: Callable[[PermitStatus], None]
    """Called once, from the scheduling loop."""
    decided: Callable[[WaitingPod], None]
    """Called once, immediately."""
    status: PermitStatus | None = None

    def allow(self, plugin: str) -> None:
        """``plugin`` delays the pod no longer."""
        self.deadlines.pop(plugin, None)
        if not self.deadlines:
            self._end(PermitStatus(allowed=True))

    def reject(self, plugin: str, message: str) -> None:
        """Reject the pod, whatever other plugins do."""
        self._end(PermitStatus(allowed=False, plugin=plugin, message=message))

    def _end(self, status: PermitStatus) -> None:
        if self.status is None:
            self.status = status
            self.decided(self)


class WaitingPods:
    """All undecided waiting pods of the process, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}
        self.is_empty = True
        self.decided: deque[WaitingPod] = deque()
        """Those whose binding is to be notified by ``notify_decided``."""
        self._deadlines: list[tuple[float, str, str, float]] = []
        """(when, uid, plugin, seconds)."""
        self.on_decided: Callable[[], None] = lambda: None
        """Called whenever there is a pod to pass to ``notify_decided``."""

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def add(
        self,
        pod: PodInfo,
        node_name: str,
        waits: Mapping[str, float],
        now: float,
        on_status: Callable[[PermitStatus], None],
    ) -> WaitingPod:
        """Add a pod that waits for the plugins in ``waits``, for each so many seconds at most from ``now`` on."""
        deadlines = {plugin: now + min(seconds, _LONGEST_WAIT) for plugin, seconds in waits.items()}
        waiting = self._pods[pod.uid] = WaitingPod(pod, node_name, deadlines, on_status, self._decide)
        self.is_empty = False
        for plugin, when in deadlines.items():
            heapq.heappush(self._deadlines, (when, pod.uid, plugin, when - now))
        return waiting

    def next_deadline(self) -> float | None:
        """When ``expire`` has something to do next; None for never."""
        while self._deadlines and not self._delays(*self._deadlines[0][1:3]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> None:
        """Reject the pods whose timeout has expired."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, uid, plugin, seconds = heapq.heappop(self._deadlines)
            if (waiting := self._pods.get(uid)) is not None:
                waiting.reject(plugin, f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}")

    def _delays(self, uid: str, plugin: str) -> bool:
        waiting = self._pods.get(uid)
        return waiting is not None and plugin in waiting.deadlines

    def notify_decided(self) -> None:
        """Call ``on_status`` of the pod that was decided first."""
        waiting = self.decided.popleft()
        assert waiting.status is not None
        waiting.on_status(waiting.status)

    def _decide(self, waiting: WaitingPod) -> None:
        if self._pods.get(waiting.pod.uid) is waiting:
            del self._pods[waiting.pod.uid]
            if not self._pods:
                self.is_empty = True
                self._deadlines.clear()
        self.decided.append(waiting)
        self.on_decided()
