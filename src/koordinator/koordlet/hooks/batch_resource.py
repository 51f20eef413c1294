"""BatchResource: the batch-cpu and batch-memory of best-effort pods become limits of their cgroups.

Kubelet knows nothing of these resources, so it gives such pods no limit and the least shares. While CPU suppress holds
the whole class to a quota, its pods have none of their own (pkg/koordlet/runtimehooks/hooks/batchresource).
"""

from __future__ import annotations

from typing import Final

from koordinator.api.qos import QoSClass
from koordinator.api.resource_threshold import CFS_QUOTA_SUPPRESS_POLICY
from koordinator.koordlet.executor.wishes import Priority
from koordinator.koordlet.hooks.contexts import BatchResources, Change, ContainerContext, PodContext
from koordinator.koordlet.hooks.cpu_normalization import normalized
from koordinator.koordlet.hooks.rules import Rules
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import quota_of_milli, shares_of_milli

OWNER: Final = "BatchResource"
_REASON: Final = "the pod's batch resources"
_SUPPRESSED: Final = f"{_REASON}; CPU suppress holds the class to a quota"


def pod(pod_: PodContext, rules: Rules) -> Change | None:
    """The sums of the containers; a pod with a container without a limit has none."""
    if pod_.qos is not QoSClass.BE or not pod_.batch:
        return None
    amounts = tuple(pod_.batch.values())
    shares = sum(each.cpu_request for each in amounts)
    cpu = _sum(pod_, [each.cpu_limit for each in amounts])
    memory = _sum(pod_, [each.memory_limit for each in amounts])
    return _change(shares, cpu, memory, rules)


def container(pod_: PodContext, container_: ContainerContext, rules: Rules) -> Change | None:
    if pod_.qos is not QoSClass.BE or container_.batch is None:
        return None
    given: BatchResources = container_.batch
    return _change(given.cpu_request, given.cpu_limit, given.memory_limit, rules)


def release_pod(pod_: PodContext, _: Rules) -> Change | None:
    """What kubelet gives to a pod without resources of Kubernetes' own."""
    if pod_.qos is not QoSClass.BE or not pod_.batch:
        return None
    return _released()


def release_container(pod_: PodContext, container_: ContainerContext, _: Rules) -> Change | None:
    return None if pod_.qos is not QoSClass.BE or container_.batch is None else _released()


def _released() -> Change:
    reason = "the gate BatchResource is off"
    return Change(reason, Priority.RELEASE, cpu_shares=shares_of_milli(0), cpu_quota=NO_LIMIT, memory_limit=NO_LIMIT)


def _sum(pod_: PodContext, limits: list[int]) -> int:
    """0 for no limit."""
    return sum(limits) if all(limits) and not pod_.has_unbounded_container else 0


def _change(request: int, cpu: int, memory: int, rules: Rules) -> Change:
    is_suppressed = _is_suppressed_by_quota(rules)
    return Change(
        _SUPPRESSED if is_suppressed else _REASON,
        Priority.POD,
        cpu_shares=shares_of_milli(request),
        cpu_quota=NO_LIMIT if is_suppressed else normalized(quota_of_milli(cpu), rules.normalization_ratio),
        memory_limit=memory or NO_LIMIT,
    )


def _is_suppressed_by_quota(rules: Rules) -> bool:
    threshold = rules.policy.resource_used_threshold_with_be if rules.policy is not None else None
    if threshold is None or not rules.is_suppression_on or not threshold.enable:
        return False
    return threshold.cpu_suppress_policy == CFS_QUOTA_SUPPRESS_POLICY
