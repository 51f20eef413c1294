"""Pods that are assumed on a node and wait to be allowed to bind: a gang waits for its last member.

A waiting pod ends in exactly one of three ways: every plugin that held it back allows it, one rejects it, or one of
their time limits is over. Whoever waits for it is notified later, from the scheduling loop: a plugin that rejects a
thousand pods because one of them has failed is not called again in the middle of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from koordinator.scheduler.engine.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class PermitStatus:
    """How waiting ended; ``plugin`` and ``message`` say who refused and why."""

    allowed: bool
    plugin: str = ""
    message: str = ""


@dataclass(slots=True)
class WaitingPod:
    """``deadlines``: plugins that still hold the pod back, each with the second of the clock when its patience ends."""

    pod: PodInfo
    node_name: str
    deadlines: dict[str, float]
    on_status: Callable[[PermitStatus], None]
    """Called once, from the loop."""
    decided: Callable[[WaitingPod], None]
    """Called once, at once."""
    status: PermitStatus | None = None

    def allow(self, plugin: str) -> None:
        """``plugin`` holds the pod back no longer."""
        self.deadlines.pop(plugin, None)
        if not self.deadlines:
            self._end(PermitStatus(allowed=True))

    def reject(self, plugin: str, message: str) -> None:
        """Whatever other plugins say, the pod is not bound."""
        self._end(PermitStatus(allowed=False, plugin=plugin, message=message))

    def _end(self, status: PermitStatus) -> None:
        if self.status is None:
            self.status = status
            self.decided(self)


class WaitingPods:
    """All waiting pods of the process, by uid: those of which nothing has been decided yet."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}
        self._decided: deque[WaitingPod] = deque()
        self.on_decided: Callable[[], None] = lambda: None
        """Called whenever there is something to ``notify_decided``."""

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def add(
        self, pod: PodInfo, node_name: str, deadlines: Mapping[str, float], on_status: Callable[[PermitStatus], None]
    ) -> WaitingPod:
        """The pod waits for the plugins in ``deadlines``."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, node_name, dict(deadlines), on_status, self._decide)
        return waiting

    def notify_decided(self) -> bool:
        """Tell who waits for the pod that was decided about first; False if there is none."""
        if not self._decided:
            return False
        waiting = self._decided.popleft()
        assert waiting.status is not None
        waiting.on_status(waiting.status)
        return True

    def _decide(self, waiting: WaitingPod) -> None:
        if self._pods.get(waiting.pod.uid) is waiting:
            del self._pods[waiting.pod.uid]
        self._decided.append(waiting)
        self.on_decided()
