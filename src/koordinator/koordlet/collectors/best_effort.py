"""What all BestEffort pods use of the CPU together, what they may use, and what they have requested."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from koordinator.api.pod import Pod
from koordinator.api.qos import QoSClass, qos_class_raw
from koordinator.api.resource_names import BATCH_CPU
from koordinator.koordlet.collectors.counters import Counters
from koordinator.koordlet.collectors.scan import BestEffortReading, Scan
from koordinator.koordlet.metric_cache.kinds import NODE_BE, Series
from koordinator.koordlet.pods.node_pod import NodePod

_USAGE = NODE_BE.series(be_resource="cpu", be_allocation="usage")
_REAL_LIMIT = NODE_BE.series(be_resource="cpu", be_allocation="real-limit")
_REQUEST = NODE_BE.series(be_resource="cpu", be_allocation="request")
_MILLI_OF_NANO = 1_000_000


@dataclass(frozen=True, slots=True)
class BestEffortUsage:
    """In milli-CPU."""

    usage: int
    real_limit: int
    """The fewest CPUs that the cpusets leave, or the CPU quota where it is less."""
    request: int
    """The batch-cpu that pods of the QoS class BE request."""

    def samples(self) -> dict[Series, float]:
        return {_USAGE: self.usage, _REAL_LIMIT: self.real_limit, _REQUEST: self.request}


class BestEffortCollector:
    """Usage from one scan to the next; 0 where there is nothing to compare with, so that the limit is known at once."""

    def __init__(self, lifetime: float) -> None:
        self._cpu: Counters[None] = Counters(lifetime)

    def collect(self, scan: Scan, pods: Iterable[NodePod]) -> BestEffortUsage | None:
        """None while kubelet has made no folder for BestEffort pods, or it could not be read."""
        reading = scan.best_effort
        if reading is None:
            return None
        # Without cpusets pods may use all CPUs: kubelet does not switch the controller on for every QoS class.
        counts = reading.cpu_counts or ((len(scan.node.cpu.by_cpu),) if scan.node else ())
        if not counts:
            return None
        growth = self._cpu.growth(None, reading.cpu, reading.monotonic)
        return BestEffortUsage(
            usage=int(growth.rate / _MILLI_OF_NANO) if growth else 0,
            real_limit=_real_limit(reading, min(counts)),
            request=sum(batch_cpu_request(pod.pod) for pod in pods if qos_class_raw(pod.pod) is QoSClass.BE),
        )


def batch_cpu_request(pod: Pod) -> int:
    """Milli-CPU that the containers and sidecars of a pod request; a negative amount counts as none."""
    sidecars = (container for container in pod.spec.init_containers if container.restart_policy == "Always")
    requests = (container.resources.requests.get(BATCH_CPU) for container in (*pod.spec.containers, *sidecars))
    return sum(max(request.value, 0) for request in requests if request is not None)


def _real_limit(reading: BestEffortReading, cpus: int) -> int:
    limit = cpus * 1000
    if reading.quota < 0 or reading.period <= 0:
        return limit
    return min(limit, reading.quota * 1000 // reading.period)
