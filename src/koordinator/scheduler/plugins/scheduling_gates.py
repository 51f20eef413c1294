"""SchedulingGates: a pod with scheduling gates stays out of the queue until they are removed."""

from __future__ import annotations

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import PreEnqueuePlugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo


class SchedulingGates(PreEnqueuePlugin):
    name = "SchedulingGates"

    def concerns(self, pod: PodInfo) -> bool:
        return bool(pod.pod.spec.scheduling_gates)

    def pre_enqueue(self, pod: Pod) -> Reason | None:
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        if not gates:
            return None
        return Reason(f"waiting for scheduling gates: [{' '.join(gates)}]", unresolvable=True)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_UPDATE})
