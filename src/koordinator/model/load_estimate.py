"""How much CPU and memory a pod is expected to use before anyone has measured it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, extended_name
from koordinator.model.pod_requests import canonical, pod_limits, pod_requests

_DEFAULT_CPU: Final = 250
_DEFAULT_MEMORY: Final = 200 * 2**20
_WITHOUT_REQUEST: Final = {
    CPU: _DEFAULT_CPU,
    BATCH_CPU: _DEFAULT_CPU,
    MEMORY: _DEFAULT_MEMORY,
    BATCH_MEMORY: _DEFAULT_MEMORY,
}


def estimate_pod(pod: Pod, factors: Mapping[str, int], priority: PriorityClass) -> dict[str, int]:
    """Expected usage of a pod of class ``priority`` under the names of ``factors`` (percent of what the pod may use, at
    most its limit).

    CPU is in milli-CPU, the rest in whole units. The amounts that a pod of the batch or mid class asks for stand under
    batch-cpu, mid-memory and so on; the estimate stands under cpu and memory, since that is what nodes run out of.
    Resources that a class has no name for are left out. (Original: the default estimator of LoadAwareScheduling.)
    """
    requests, limits = pod_requests(pod, resized=False), pod_limits(pod)
    estimate: dict[str, int] = {}
    for resource, factor in factors.items():
        name = extended_name(resource, priority)
        if not name:
            continue
        # Batch and mid CPU are counted in milli-CPU as whole units.
        limit_nanos, request_nanos = limits.get(name, 0), requests.get(name, 0)
        limit = canonical(name, limit_nanos)
        amount = limit if request_nanos <= limit_nanos else canonical(name, request_nanos)
        if amount == 0:
            estimate[resource] = _WITHOUT_REQUEST.get(name, 0)
            continue
        expected = (amount * factor + 50) // 100
        estimate[resource] = min(expected, limit) if limit > 0 else expected
    return estimate
