"""Pods that have their room and wait to be allowed to bind: a gang waits for its last member.

A waiting pod ends in exactly one of three ways: every plugin that held it back allows it, one rejects it, or one of
their time limits is over. Whoever waits for it is told by a callback, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from koordinator.scheduler.engine.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Verdict:
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
    verdict: Verdict | None = None
    on_verdict: Callable[[], None] | None = None

    def allow(self, plugin: str) -> None:
        """``plugin`` holds the pod back no longer."""
        self.deadlines.pop(plugin, None)
        if not self.deadlines:
            self._end(Verdict(allowed=True))

    def reject(self, plugin: str, message: str) -> None:
        """Whatever other plugins say, the pod is not bound."""
        self._end(Verdict(allowed=False, plugin=plugin, message=message))

    def _end(self, verdict: Verdict) -> None:
        if self.verdict is None:
            self.verdict = verdict
            if self.on_verdict is not None:
                self.on_verdict()


@dataclass(slots=True)
class WaitingPods:
    """All waiting pods of the process, by uid."""

    _pods: dict[str, WaitingPod] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def add(self, pod: PodInfo, node_name: str, deadlines: Mapping[str, float]) -> WaitingPod:
        """The pod waits for the plugins in ``deadlines``."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, node_name, dict(deadlines))
        return waiting

    def remove(self, uid: str) -> None:
        """Waiting is over."""
        self._pods.pop(uid, None)
