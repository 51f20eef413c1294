"""CPUSetAllocator: pods that the scheduler has given CPUs have these alone, the others share what is left.

Which CPUs a container gets, by the first that applies: the pod's own; the pools of its NUMA nodes; the system's, for
SYSTEM pods; all pools, for LS pods; none by us, for what is below the BestEffort folder, since CPU suppress looks after
it; none by us where kubelet's static CPU manager hands out CPUs; else all pools. What has CPUs of its own is not
throttled (pkg/koordlet/runtimehooks/hooks/cpuset; original issue 489).
"""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.qos import QoSClass
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.hooks.contexts import (
    Change,
    ContainerContext,
    HookError,
    PodContext,
    allocation,
    is_best_effort,
)
from koordinator.koordlet.enforce.hooks.registry import STARTING, Hook
from koordinator.koordlet.enforce.hooks.rules import CPUPools, Rules, cpus_of
from koordinator.node.cgroup_reader import NO_LIMIT

OWNER: Final = "CPUSetAllocator"
_ALLOCATED: Final = f"the pod's annotation {annotation_keys.RESOURCE_STATUS}"


def pod(pod_: PodContext, rules: Rules) -> Change | None:
    """The quota of a pod with CPUs of its own."""
    if not rules.unsets_quota or not allocation(pod_).cpus:
        return None
    return Change(f"{_ALLOCATED}: pods with CPUs of their own are not throttled", Priority.POD, cpu_quota=NO_LIMIT)


def container(pod_: PodContext, _: ContainerContext, rules: Rules) -> Change | None:
    """Of containers and sandboxes. HookError if the pod's annotation cannot be read."""
    cpus = allocation(pod_).cpus
    if cpus:
        return Change(_ALLOCATED, Priority.POD, cpuset=cpus, cpu_quota=NO_LIMIT if rules.unsets_quota else None)
    return None if rules.pools is None else _shared(pod_, rules.pools, rules)


def host_application(application: HostApplicationSpec, rules: Rules) -> Change | None:
    """HookError for a class that has no pool."""
    if rules.pools is None:
        return None
    if application.qos != QoSClass.LS:
        raise HookError(f"only LS is supported for host application {application.name}")
    return Change("LS programs share the LS pools", cpuset=rules.pools.all_shared)


def release_pod(pod_: PodContext, rules: Rules) -> Change | None:
    """The quota that kubelet gives, of pods that had none because of their CPUs."""
    if not allocation(pod_).cpus or pod_.bandwidth is None:
        return None
    return Change("the gate CPUSetAllocator is off", Priority.RELEASE, cpu_quota=pod_.bandwidth.quota)


def release_container(pod_: PodContext, container_: ContainerContext, rules: Rules) -> Change | None:
    """All CPUs, unless kubelet or CPU suppress gives them out."""
    if is_best_effort(pod_) or rules.pools is None or rules.pools.is_kubelet_static or not rules.cpus:
        return None
    given = container_.bandwidth if allocation(pod_).cpus else None
    quota = None if given is None else given.quota
    return Change("the gate CPUSetAllocator is off", Priority.RELEASE, cpuset=rules.cpus, cpu_quota=quota)


def _shared(pod_: PodContext, pools: CPUPools, rules: Rules) -> Change | None:
    nodes = allocation(pod_).numa_nodes
    if nodes and (pod_.qos is not QoSClass.BE or rules.shares_best_effort_pools):
        given = pools.best_effort if pod_.qos is QoSClass.BE else pools.shared
        where = format_cpu_list(nodes)
        cpus = cpus_of(pool for pool in given if pool.numa_node in nodes)
        return Change(f"the pool of NUMA node {where}, which is the pod's", Priority.POD, cpuset=cpus)
    if pod_.qos is QoSClass.SYSTEM and pools.system:
        return Change("the CPUs of the system's own processes", cpuset=pools.system)
    if pod_.qos is QoSClass.LS:
        return Change("LS pods share the LS pools", cpuset=pools.all_shared)
    if is_best_effort(pod_):
        return Change("CPU suppress looks after BestEffort pods", cpuset=frozenset())
    if pools.is_kubelet_static:
        return None
    return Change("pods without CPUs of their own share the LS pools", cpuset=pools.all_shared)


HOOK: Final = Hook(
    OWNER, features.CPUSET_ALLOCATOR, STARTING, pod=pod, container=container, host_application=host_application
)
RELEASING: Final = Hook(OWNER, features.CPUSET_ALLOCATOR, pod=release_pod, container=release_container)
