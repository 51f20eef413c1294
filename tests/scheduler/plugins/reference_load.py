"""LoadAwareScheduling once more, plainly, for the resources cpu and memory."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import msgspec

from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from tests.scheduler.plugins.reference import FilterResult, Machine
from tests.scheduler.plugins.reference_requests import allocatable_of, amount_of, limits_of, requests_of

RESOURCES = ("cpu", "memory")


def as_requested(pod: Pod) -> Pod:
    """Without what its status says that its containers have been granted."""
    return msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, container_statuses=[], init_container_statuses=[])
    )


def estimate(pod: Pod, factors: dict[str, int]) -> dict[str, int]:
    """batch-cpu counts for cpu in pods of the batch class. The status of containers does not count."""
    pod = as_requested(pod)
    batch = priority_class_with_default(pod) is PriorityClass.BATCH
    expected = {}
    for name in RESOURCES:
        real = f"kubernetes.io/batch-{name}" if batch else name
        limit, amount = limits_of(pod).get(real, 0), max(limits_of(pod).get(real, 0), requests_of(pod).get(real, 0))
        if amount == 0:
            expected[name] = {"cpu": 250, "memory": 200 * 1024 * 1024}[name]
            continue
        expected[name] = math.floor(amount * factors[name] / 100 + 0.5)
        if limit:
            expected[name] = min(expected[name], limit)
    return expected


def load(machine: Machine, pod: Pod, args: Any, *, prod: bool) -> dict[str, int]:
    """What the node's pods use or are expected to use, with ``pod`` among them."""
    metric = machine.metric
    assert metric is not None
    info = metric.status.node_metric
    assert info is not None
    reported = {f"{each.namespace}/{each.name}": each for each in metric.status.pods_metric if each.pod_usage.resources}
    sums = dict.fromkeys(RESOURCES, 0)
    for name in RESOURCES:
        if not prod:
            sums[name] += amount_of(info.node_usage.resources, name)
        elif args.prod_usage_include_sys:
            sums[name] += amount_of(info.system_usage.resources, name)
    for other in machine.pods:
        mine = reported.get(other.metadata.key)
        is_prod = priority_class_with_default(other) is PriorityClass.PROD
        active = is_prod and mine is not None and mine.priority == "koord-prod"
        expected = estimate(other, args.estimated_scaling_factors)
        force = mine is None or machine.updated - 60 < scheduled_at(other)
        for name in RESOURCES:
            used = amount_of(mine.pod_usage.resources, name) if mine else 0
            if prod and active:
                sums[name] += used
            if prod and is_prod and (force or not active):
                sums[name] += max(0, expected[name] - (used if active else 0))
            if not prod and force:
                sums[name] += max(0, expected[name] - used)
    mine_expected = estimate(pod, args.estimated_scaling_factors)
    return {name: sums[name] + mine_expected[name] for name in RESOURCES}


def scheduled_at(pod: Pod) -> float:
    condition = next(each for each in pod.status.conditions if each.type == "PodScheduled")
    assert condition.last_transition_time is not None
    return condition.last_transition_time.timestamp()


def expired(machine: Machine, args: Any, now: datetime) -> bool:
    assert machine.metric is not None
    updated = machine.metric.status.update_time
    return updated is None or (now - updated).total_seconds() >= args.node_metric_expiration_seconds


def load_aware_filter(machine: Machine, pod: Pod, args: Any, now: datetime) -> FilterResult:
    by_prod = any(args.prod_usage_thresholds.values()) and priority_class_with_default(pod) is PriorityClass.PROD
    thresholds = args.prod_usage_thresholds if by_prod else args.usage_thresholds
    if not any(thresholds.values()) or machine.metric is None:
        return []
    if args.filter_expired_node_metrics and expired(machine, args, now):
        return [] if args.enable_schedule_when_node_metrics_expired else [("node(s) nodeMetric expired", False)]
    if machine.metric.status.node_metric is None:
        return []
    expected = load(machine, pod, args, prod=by_prod)
    capacity = allocatable_of(machine.node)
    for name in RESOURCES:
        bound = thresholds.get(name, 0)
        if not bound or not capacity.get(name, 0):
            continue
        if math.floor(expected[name] / capacity[name] * 100 + 0.5) > bound:
            return [(f"node(s) {name} usage exceed threshold", False)]
    return []


def load_aware_score(machine: Machine, pod: Pod, args: Any, now: datetime) -> int:
    metric = machine.metric
    if metric is None or expired(machine, args, now) or metric.status.node_metric is None:
        return 0
    prod = args.score_according_prod_usage and priority_class_with_default(pod) is PriorityClass.PROD
    expected = load(machine, pod, args, prod=prod)
    capacity = allocatable_of(machine.node)
    score = weight_sum = 0
    for name, weight in args.resource_weights.items():
        all_ = capacity.get(name, 0)
        free = (all_ - expected[name]) * 100 // all_ if all_ and expected[name] <= all_ else 0
        score += free * weight
        weight_sum += weight
    return score // weight_sum
