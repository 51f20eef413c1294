"""What a container should request: percentiles of its usage, with a margin, within the bounds of its policy. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from koordinator.api.resource_names import CPU, MEMORY
from koordinator.manager.recommender.container_model import ContainerModel, History
from koordinator.manager.recommender.options import EstimateOptions, Percentiles
from koordinator.manager.recommender.policy import ContainerRules

_MINUTES_A_DAY: Final = 1440
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one resource of one container: CPU in milli-cores, memory in bytes."""

    target: int
    lower: int
    upper: int | None
    """None as long as there is no history to bound it by."""
    uncapped_target: int
    """The target without the policy's minAllowed and maxAllowed."""


def confidence(history: History, interval: timedelta) -> float:
    """How many ``interval`` of history there are: by time and, for gaps, by the number of samples, one a minute."""
    if history.first is None or history.last is None:
        return 0.0
    by_time = (history.last - history.first) / interval
    by_count = history.count / _MINUTES_A_DAY * (_DAY / interval)
    return min(by_time, by_count)


def estimate(
    model: ContainerModel, policy: ContainerRules, options: EstimateOptions, containers: int
) -> Mapping[str, Estimate]:
    """cpu and memory -> amounts, of what the policy controls and has samples. ``containers``: how many the pod has."""
    sure = confidence(model.history, options.confidence_interval)
    found: dict[str, Estimate] = {}
    if not model.cpu.is_empty and CPU in policy.controlled:
        cores = _percentiles(options.cpu, policy, CPU)
        amounts = [model.cpu.percentile(fraction) * 1000 for fraction in cores]
        least = options.pod_min_cpu_millicores / containers
        found[CPU] = _bounded(amounts, sure, least, options.round_cpu_millicores, CPU, policy, options)
    if not model.memory.is_empty and MEMORY in policy.controlled:
        sizes = _percentiles(options.memory, policy, MEMORY)
        amounts = [model.memory.percentile(fraction) for fraction in sizes]
        least = options.pod_min_memory_bytes / containers
        found[MEMORY] = _bounded(amounts, sure, least, options.round_memory_bytes, MEMORY, policy, options)
    return found


def _percentiles(default: Percentiles, policy: ContainerRules, resource: str) -> tuple[float, float, float]:
    """(target, lower, upper)"""
    return policy.target_percentile.get(resource, default.target), default.lower, default.upper


def _bounded(
    amounts: list[float],
    sure: float,
    least: float,
    step: int,
    resource: str,
    policy: ContainerRules,
    options: EstimateOptions,
) -> Estimate:
    """``amounts`` are the percentiles (target, lower, upper); ``least`` is this container's part of the minimum."""
    margin = 1 + (options.margin_fraction if policy.margin_fraction is None else policy.margin_fraction)
    target, lower, upper = (amount * margin for amount in amounts)
    # The factors of the vertical pod autoscaler: the less history, the wider the range; 0.6 and 289 times after five
    # minutes, 1.0 and 2 times after a day.
    lower *= (1 + 0.001 / sure) ** -2 if sure > 0 else 0.0
    high = upper * (1 + 1 / sure) if sure > 0 else None
    bounds = policy.bounds_of(resource)
    uncapped = _rounded(max(target, least), step)
    low_at, target_at = (bounds.clamp(_rounded(max(amount, least), step)) for amount in (lower, target))
    high_at = None if high is None else bounds.clamp(_rounded(max(high, least), step))
    if high_at is None:
        high_at = bounds.maximum
    return Estimate(
        target=target_at,
        lower=min(low_at, target_at),
        upper=None if high_at is None else max(high_at, target_at),
        uncapped_target=uncapped,
    )


def _rounded(amount: float, step: int) -> int:
    """Up to a multiple of ``step``."""
    return math.ceil(amount / step) * step
