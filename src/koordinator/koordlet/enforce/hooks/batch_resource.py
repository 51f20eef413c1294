"""BatchResource: the batch and free resources of best-effort pods become limits of their cgroups.

Kubelet knows nothing of these resources, so it gives such pods no limit and the least shares. While CPU suppress holds
the whole class to a quota, its pods have none of their own (pkg/koordlet/runtimehooks/hooks/batchresource).
"""

from __future__ import annotations

from typing import Final

from koordinator.api.qos import QoSClass
from koordinator.api.resource_threshold import CFS_QUOTA_SUPPRESS_POLICY
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, PodContext
from koordinator.koordlet.enforce.hooks.cpu_normalization import normalized
from koordinator.koordlet.enforce.hooks.registry import STARTING, Hook
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.model.pod_grants import Grant
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import PERIOD, quota_of_milli, shares_of_milli

OWNER: Final = "BatchResource"
_REASON: Final = "the pod's batch resources"
_SUPPRESSED: Final = f"{_REASON}; CPU suppress holds the class to a quota"


def pod(pod_: PodContext, rules: Rules) -> Change | None:
    """The sums of the containers; a pod with a container without a limit has none."""
    if pod_.qos is not QoSClass.BE or not pod_.batch:
        return None
    amounts = tuple(pod_.batch.values())
    cpu, memory = [each.cpu_limit for each in amounts], [each.memory_limit for each in amounts]
    whole = Grant(sum(each.cpu_request for each in amounts), _sum(pod_, cpu), _sum(pod_, memory))
    return _change(whole, pod_.bandwidth, rules)


def _sum(pod_: PodContext, limits: list[int | None]) -> int | None:
    known = [each for each in limits if each is not None]
    return sum(known) if len(known) == len(limits) and not pod_.has_unbounded_container else None


def container(pod_: PodContext, container_: ContainerContext, rules: Rules) -> Change | None:
    if pod_.qos is not QoSClass.BE or container_.batch is None:
        return None
    return _change(container_.batch, container_.bandwidth, rules)


def release_pod(pod_: PodContext, _: Rules) -> Change | None:
    return _released(pod_.grant, pod_.bandwidth) if pod_.qos is QoSClass.BE and pod_.batch else None


def release_container(pod_: PodContext, container_: ContainerContext, _: Rules) -> Change | None:
    if pod_.qos is not QoSClass.BE or container_.batch is None:
        return None
    return _released(container_.grant, container_.bandwidth)


def _released(grant: Grant | None, bandwidth: Bandwidth | None) -> Change | None:
    """What the kubelet gives by the resources of Kubernetes' own, of which such a pod rarely has any."""
    if grant is None or bandwidth is None:
        return None
    return Change(
        "the gate BatchResource is off",
        Priority.RELEASE,
        cpu_shares=shares_of_milli(grant.cpu_request),
        cpu_quota=bandwidth.quota,
        memory_limit=grant.memory_limit or NO_LIMIT,
    )


def _change(amounts: Grant, given: Bandwidth | None, rules: Rules) -> Change:
    is_suppressed = _is_suppressed_by_quota(rules)
    quota = quota_of_milli(amounts.cpu_limit or 0, PERIOD if given is None else given.period)
    return Change(
        _SUPPRESSED if is_suppressed else _REASON,
        Priority.POD,
        cpu_shares=shares_of_milli(amounts.cpu_request),
        cpu_quota=NO_LIMIT if is_suppressed else normalized(quota, rules.normalization_ratio),
        memory_limit=amounts.memory_limit or NO_LIMIT,
    )


def _is_suppressed_by_quota(rules: Rules) -> bool:
    threshold = rules.policy.resource_used_threshold_with_be if rules.policy is not None else None
    if threshold is None or not rules.is_suppression_on or not threshold.enable:
        return False
    return threshold.cpu_suppress_policy == CFS_QUOTA_SUPPRESS_POLICY


HOOK: Final = Hook(OWNER, features.BATCH_RESOURCE, STARTING, pod=pod, container=container)
RELEASING: Final = Hook(OWNER, features.BATCH_RESOURCE, pod=release_pod, container=release_container)
