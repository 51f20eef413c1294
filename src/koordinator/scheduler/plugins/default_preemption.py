"""The DefaultPreemption plugin: for a pod that fits on no node, it evicts lower-priority pods from one node."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from koordinator.api.kinds import POD_DISRUPTION_BUDGETS
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NO_PLAN, FailedAttempt, PostFilterPlugin, PostFilterResult
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.preemption import PodPreemption


class DefaultPreemption(PostFilterPlugin):
    name = "DefaultPreemption"
    watches: ClassVar = (POD_DISRUPTION_BUDGETS,)
    handle: Handle

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._preemption = PodPreemption(self, args)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def result_key(self, pod: PodInfo) -> Hashable:
        return pod.priority, pod.pod.spec.preemption_policy

    def post_filter(self, pod: PodInfo, attempt: FailedAttempt) -> PostFilterResult:
        if pod.uid in self.view.pseudo_pods:
            # For a pseudo pod, which represents a Reservation, the Reservation plugin preempts, if enabled.
            return NO_PLAN
        return self._preemption.plan(pod, attempt).result
