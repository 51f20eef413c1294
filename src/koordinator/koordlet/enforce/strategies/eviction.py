"""Which pods are evicted, for how much, and in which order.

Six features, each a task: an amount to release and candidates in order (pkg/koordlet/qosmanager/plugins/util), which
``eviction_round`` works through. The order is total: what is equal in everything goes by namespace and name. Static
pods are no candidates, as in the kubelet's own evictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.node import Node
from koordinator.api.priority import PriorityClass
from koordinator.api.qos import QoSClass
from koordinator.api.resource_names import BATCH_CPU, BEST_EFFORT_CPUS, CPU, MEMORY, extended_name
from koordinator.api.resource_threshold import EVICT_BY_ALLOCATABLE, ResourceThresholdStrategy
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage, Snapshot, capacity_milli
from koordinator.koordlet.pods.node_pod import NodePod

_HIGHEST_EVICTABLE: Final = 7999
"""Pods of a higher priority are never evicted for what is allocated: they are koord-prod's."""
_DEFAULT_BE_USAGE: Final = 90
_LEAST_LIMIT: Final = 1000
_INT32: Final = range(-(2**31), 2**31)


BEST_EFFORT_CPU: Final = "best-effort-cpu"
"""Batch CPU and free CPU together. They share what is there, so that batch pods go where free pods cannot."""


class Feature(StrEnum):
    """The gates, in the order in which their tasks are worked through."""

    BE_CPU = "BECPUEvict"
    CPU_ALLOCATABLE = "CPUAllocatableEvict"
    CPU = "CPUEvict"
    BE_MEMORY = "BEMemoryEvict"
    MEMORY_ALLOCATABLE = "MemoryAllocatableEvict"
    MEMORY = "MemoryEvict"
    INTERFERENCE = "InterferenceDetection"


class Basis(StrEnum):
    """What a victim releases."""

    REQUEST = "podResourceRequest"
    USAGE = "podUsed"


Amounts = Mapping[str, int]
"""By resource, or ``BEST_EFFORT_CPU``: milli-CPU, or bytes."""


@dataclass(frozen=True, slots=True)
class BestEffortCPU:
    """Milli-CPU of all best-effort pods: the means over a window, and the latest values."""

    usage: float
    request: float
    limit: float
    last_usage: float
    last_request: float
    last_limit: float


@dataclass(frozen=True, slots=True)
class Inputs:
    """Beside the snapshot. ``node_cpu_average`` in cores over the window of the policy; None where it is not known."""

    snapshot: Snapshot
    best_effort_cpu: BestEffortCPU | None = None
    node_cpu_average: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """``need`` by resource, to be released by evicting ``candidates`` from the first on."""

    feature: Feature
    basis: Basis
    need: Amounts
    candidates: tuple[PodUsage, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """Tasks in their order, and settings that cannot be used: their feature is left out."""

    tasks: tuple[Task, ...]
    problems: tuple[str, ...] = ()


class InvalidThresholdError(ValueError):
    """A feature's settings are absent or contradict each other; the text names them."""


def plan(inputs: Inputs, features: Collection[Feature]) -> EvictionPlan:
    """The tasks of the features, of those with something to release."""
    snapshot = inputs.snapshot
    policy = snapshot.policy.resource_used_threshold_with_be if snapshot.policy is not None else None
    if policy is None or not policy.enable or snapshot.node is None:
        return EvictionPlan(())
    tasks: list[Task] = []
    problems: list[str] = []
    for feature in Feature:
        if feature not in features:
            continue
        try:
            found = _TASKS[feature](inputs, snapshot.node, policy)
        except InvalidThresholdError as error:
            problems.append(f"{feature}: {error}")
            continue
        if found is not None and any(amount > 0 for amount in found.need.values()):
            tasks.append(found)
    return EvictionPlan(tuple(tasks), tuple(problems))


def _best_effort_cpu(inputs: Inputs, node: Node, policy: ResourceThresholdStrategy) -> Task | None:
    lower, upper = policy.cpu_evict_be_satisfaction_lower_percent, policy.cpu_evict_be_satisfaction_upper_percent
    if lower is None or not 0 < lower <= 60:
        raise InvalidThresholdError(f"cpuEvictBESatisfactionLowerPercent is {lower}: above 0, at most 60 is expected")
    if upper is None or not lower <= upper < 100:
        raise InvalidThresholdError(
            f"cpuEvictBESatisfactionUpperPercent is {upper}: at least {lower}, below 100 is expected"
        )
    given = inputs.best_effort_cpu
    if given is None:
        return None
    threshold = policy.cpu_evict_be_usage_threshold_percent
    hot = _DEFAULT_BE_USAGE if threshold is None else threshold
    average, last = given.limit, given.last_limit
    if policy.cpu_evict_policy == EVICT_BY_ALLOCATABLE:
        average = last = _allocatable_batch_cpu(node)
    release = _shortage(given.request, average, lower, upper) if _is_hot(given.usage, average, hot) else 0
    if release <= 0 or not _is_hot(given.last_usage, last, hot):
        return None
    if (given.last_request, last) != (given.request, average):
        release = min(release, _shortage(given.last_request, last, lower, upper))
    reason = f"best-effort pods get {average:.0f} of {given.request:.0f} milli-CPU"
    candidates = _best_effort_candidates(inputs.snapshot, Feature.BE_CPU, _by_cpu_usage)
    return Task(Feature.BE_CPU, Basis.REQUEST, {BEST_EFFORT_CPU: release}, candidates, reason)


def _allocatable_batch_cpu(node: Node) -> float:
    amount = node.status.allocatable.get(BATCH_CPU)
    if amount is None or amount.value < 0:
        return -1.0
    return float(amount.value or 1)


def _is_hot(usage: float, limit: float, percent: int) -> bool:
    """Whether best-effort pods use what they have; little is always used."""
    if limit <= 0:
        return False
    return limit < _LEAST_LIMIT or usage / limit >= percent / 100


def _shortage(requested: float, limit: float, lower: int, upper: int) -> int:
    if requested <= 0:
        return 0
    satisfaction = limit / requested
    if satisfaction > lower / 100:
        return 0
    return max(math.trunc(requested * (upper / 100 - satisfaction)), 0)


def _cpu(inputs: Inputs, node: Node, policy: ResourceThresholdStrategy) -> Task | None:
    threshold, lower = _pair("cpuEvict", policy.cpu_evict_threshold_percent, policy.cpu_evict_lower_percent)
    highest = _priority_threshold(policy)
    capacity = capacity_milli(node)
    if inputs.node_cpu_average is None or capacity <= 0:
        return None
    percent = math.trunc(inputs.node_cpu_average * 1000) * 100 // capacity
    if percent < threshold:
        return None
    candidates = _prioritised(inputs.snapshot, Feature.CPU, highest, lambda usage: usage.cpu or 0.0)
    need = {CPU: capacity * (percent - lower) // 100}
    return Task(Feature.CPU, Basis.USAGE, need, candidates, f"{percent} percent of the node's CPU are used")


def _memory(feature: Feature, inputs: Inputs, node: Node, policy: ResourceThresholdStrategy) -> Task | None:
    threshold, lower = _pair("memoryEvict", policy.memory_evict_threshold_percent, policy.memory_evict_lower_percent)
    highest = _priority_threshold(policy) if feature is Feature.MEMORY else 0
    amount = node.status.capacity.get(MEMORY)
    # Nobody gets the pool of huge pages as memory: it is neither used nor there to be used.
    capacity = 0 if amount is None else amount.value - math.trunc(inputs.snapshot.huge_pages)
    if inputs.snapshot.node_memory is None or capacity <= 0:
        return None
    percent = math.trunc(inputs.snapshot.node_memory) * 100 // capacity
    if percent < threshold:
        return None
    if feature is Feature.MEMORY:
        candidates = _prioritised(inputs.snapshot, feature, highest, lambda usage: usage.memory or 0.0)
    else:
        candidates = _best_effort_candidates(inputs.snapshot, feature, lambda usage: usage.memory or 0.0)
    need = {MEMORY: capacity * (percent - lower) // 100}
    return Task(feature, Basis.USAGE, need, candidates, f"{percent} percent of the node's memory are used")


def _allocatable(
    feature: Feature, native: str, inputs: Inputs, node: Node, policy: ResourceThresholdStrategy
) -> Task | None:
    threshold = getattr(policy, f"{native}_allocatable_evict_threshold_percent")
    lower = getattr(policy, f"{native}_allocatable_evict_lower_percent")
    if threshold is None or lower is None or threshold < 0 or not 0 <= lower < threshold:
        raise InvalidThresholdError(
            f"{native}AllocatableEvictThresholdPercent {threshold} must be above its lower {lower}"
        )
    highest = policy.allocatable_evict_priority_threshold
    if highest is None or highest > _HIGHEST_EVICTABLE:
        raise InvalidThresholdError(f"allocatableEvictPriorityThreshold is {highest}: at most 7999 is expected")
    need = {}
    evictable = [usage.pod for usage in inputs.snapshot.pods if usage.pod.priority <= highest]
    for class_ in (PriorityClass.BATCH, PriorityClass.MID, PriorityClass.FREE):
        resource = extended_name(native, class_)
        total = sum([pod.containers_request.get(resource, 0) for pod in evictable if pod.priority_class is class_])
        if class_ is PriorityClass.FREE and not total:
            continue
        amount = node.status.allocatable.get(resource)
        allocatable = 0 if amount is None else amount.value
        if allocatable <= 0:
            need[resource] = total
        elif total / allocatable > threshold / 100:
            need[resource] = math.trunc(total - lower / 100 * allocatable)
    if not any(amount > 0 for amount in need.values()):
        return None

    def size(usage: PodUsage) -> float:
        return float(sum(usage.pod.containers_request.get(each, 0) for each in need))

    candidates = _prioritised(inputs.snapshot, feature, highest, size)
    reason = "more is requested than the node offers: " + ", ".join(f"{key} {value}" for key, value in need.items())
    return Task(feature, Basis.REQUEST, need, candidates, reason)


def _pair(name: str, threshold: int | None, lower: int | None) -> tuple[int, int]:
    if threshold is None or threshold < 0:
        raise InvalidThresholdError(f"{name}ThresholdPercent is {threshold}: 0 to 100 is expected")
    lower = threshold - 2 if lower is None else lower
    if lower >= threshold:
        raise InvalidThresholdError(f"{name}LowerPercent {lower} must be below {name}ThresholdPercent {threshold}")
    return threshold, lower


def _priority_threshold(policy: ResourceThresholdStrategy) -> int:
    if policy.evict_enabled_priority_threshold is None:
        raise InvalidThresholdError("evictEnabledPriorityThreshold is not set")
    return policy.evict_enabled_priority_threshold


def _best_effort_candidates(
    snapshot: Snapshot, feature: Feature, size: Callable[[PodUsage], float]
) -> tuple[PodUsage, ...]:
    pods = [
        usage
        for usage in snapshot.pods
        if usage.pod.qos is QoSClass.BE and not usage.pod.is_static and permits(usage, feature)
    ]
    # A pod without a priority counts as one of the lowest: an order that compares some pairs and not others is none.
    return tuple(sorted(pods, key=lambda usage: (usage.pod.pod.spec.priority or 0, -size(usage), *_name(usage))))


def requested_of(pod: NodePod, resource: str) -> int:
    """What the containers of a pod request of a resource that a task names."""
    names = BEST_EFFORT_CPUS if resource == BEST_EFFORT_CPU else (resource,)
    return sum([pod.containers_request.get(each, 0) for each in names])


def _by_cpu_usage(usage: PodUsage) -> float:
    requested = requested_of(usage.pod, BEST_EFFORT_CPU)
    return (usage.cpu or 0.0) * 1000 / requested if requested else 0.0


def _prioritised(
    snapshot: Snapshot, feature: Feature, highest: int, size: Callable[[PodUsage], float]
) -> tuple[PodUsage, ...]:
    pods = [usage for usage in snapshot.pods if _is_evictable(usage, highest) and permits(usage, feature)]
    return tuple(sorted(pods, key=lambda usage: (*_order(usage.pod), -size(usage), *_name(usage))))


def _is_evictable(usage: PodUsage, highest: int) -> bool:
    pod = usage.pod
    return (
        pod.is_active
        and pod.priority <= highest
        and pod.pod.metadata.labels.get(label_keys.EVICTION_ENABLED) == "true"
        and (usage.cpu is not None or usage.memory is not None)
        and not pod.is_static
    )


def permits(usage: PodUsage, feature: Feature) -> bool:
    """Whether the pod's own list of features, if it has one, has this one. What is no list permits nothing."""
    text = usage.pod.pod.metadata.annotations.get(annotation_keys.EVICTION_POLICY)
    if text is None:
        return True
    try:
        return feature.value in decode(text, list[str])
    except DecodeError:
        return False


def _order(pod: NodePod) -> tuple[int, int, int]:
    """Its place, lowest first: what its annotation says, its priority, and what its label says within that."""
    metadata = pod.pod.metadata
    return (
        _integer(metadata.annotations.get(annotation_keys.EVICTION_PRIORITY), 0),
        pod.priority,
        _integer(metadata.labels.get(label_keys.PRIORITY), pod.priority),
    )


def _integer(text: str | None, default: int) -> int:
    try:
        number = int(text) if text is not None else default
    except ValueError:
        return default
    return number if number in _INT32 else default


def _name(usage: PodUsage) -> tuple[str, str]:
    return usage.pod.pod.metadata.namespace, usage.pod.pod.metadata.name


_Make = Callable[[Inputs, Node, ResourceThresholdStrategy], Task | None]
_TASKS: Final[Mapping[Feature, _Make]] = {
    Feature.BE_CPU: _best_effort_cpu,
    Feature.CPU_ALLOCATABLE: partial(_allocatable, Feature.CPU_ALLOCATABLE, CPU),
    Feature.CPU: _cpu,
    Feature.BE_MEMORY: partial(_memory, Feature.BE_MEMORY),
    Feature.MEMORY_ALLOCATABLE: partial(_allocatable, Feature.MEMORY_ALLOCATABLE, MEMORY),
    Feature.MEMORY: partial(_memory, Feature.MEMORY),
}
CPU_FEATURES: Final = (Feature.BE_CPU, Feature.CPU_ALLOCATABLE, Feature.CPU)
MEMORY_FEATURES: Final = (Feature.BE_MEMORY, Feature.MEMORY_ALLOCATABLE, Feature.MEMORY)
