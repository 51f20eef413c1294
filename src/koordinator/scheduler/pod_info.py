"""A pod with all that scheduling derives from it once."""

from __future__ import annotations

from typing import Final

from koordinator.api.pod import Pod
from koordinator.model.pod_requests import Amounts, canonical, non_zero_requests, pod_requests
from koordinator.scheduler.engine.columns import ResourceIndex
from koordinator.scheduler.engine.framework import PodInfo, PodRequest

_SCORED: Final = ("cpu", "memory")


def pod_info(pod: Pod, resources: ResourceIndex) -> PodInfo:
    """``resources`` gains columns for names that are new to it."""
    requests = pod_requests(pod)
    amounts = {resources.column(name): canonical(name, nanos) for name, nanos in requests.items() if nanos > 0}
    metadata = pod.metadata
    return PodInfo(
        pod=pod,
        request=PodRequest(amounts, _non_zero(pod, requests)),
        key=metadata.key,
        uid=metadata.uid,
        priority=pod.spec.priority or 0,
    )


def _non_zero(pod: Pod, requests: Amounts) -> tuple[int, int]:
    spec = pod.spec
    # The usual pod names both in every container: the plain sums are the answer then.
    if all(name in each.resources.requests for each in (*spec.containers, *spec.init_containers) for name in _SCORED):
        totals = requests
    else:
        totals = non_zero_requests(pod)
    return canonical("cpu", totals.get("cpu", 0)), canonical("memory", totals.get("memory", 0))
