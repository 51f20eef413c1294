"""A plugin for quotas, in small: a pod's label ``quota`` names the group whose CPUs it counts against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from koordinator.api.resource_names import CPU
from koordinator.scheduler.engine.binding_points import CyclePreFilterPlugin, CycleState
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import EventHandler, Reason
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, Nomination, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.view import ClusterView


class Quotas(CyclePreFilterPlugin, PostFilterPlugin, EventHandler):
    """``limits`` in milli-CPU. Evicts less important pods of the same group, wherever they are."""

    name = "Quotas"
    handle: Handle
    also: tuple[Nomination, ...] = ()

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.limits: dict[str, int] = {}
        self._pods: dict[str, set[str]] = {}
        self.used: Counter[str] = Counter()
        self.calls = 0

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        pods = self._pods.setdefault(_group(pod), set())
        if pod.uid not in pods:
            pods.add(pod.uid)
            self.used[_group(pod)] += pod.request.amounts.get(CPU, 0)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        self._pods[_group(pod)].remove(pod.uid)
        self.used[_group(pod)] -= pod.request.amounts.get(CPU, 0)

    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        return self._exceeded(pod, 0)

    def _exceeded(self, pod: PodInfo, row: int) -> Reason | None:
        group = _group(pod)
        limit = self.limits.get(group)
        if limit is None or self.used[group] + pod.request.amounts.get(CPU, 0) <= limit:
            return None
        return Reason(f"quota {group} is used up")

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        self.calls += 1
        with self.handle.simulate(attempt) as simulation:
            simulation.require(self._exceeded)
            victims: list[PodInfo] = []
            for pods in list(self.view.pods_on.values()):
                for other in list(pods.values()):
                    if _group(other) == _group(pod) and other.priority < pod.priority:
                        simulation.remove(other)
                        victims.append(other)
                        for name, row in self.view.columns.row_of.items():
                            if simulation.fits(pod, row):
                                return PostFilterResult("", name, tuple(victims), self.name, self.also)
        return PostFilterResult("no victims in the quota")

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE})


def _group(pod: PodInfo) -> str:
    return pod.pod.metadata.labels.get("quota", "")
