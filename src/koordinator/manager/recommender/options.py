"""The options of the recommender, with the defaults of Kubernetes' vertical pod autoscaler where it has the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How usage is remembered."""

    cpu_half_life: timedelta = timedelta(hours=24)
    """A sample of CPU loses half of its weight in this time."""
    memory_half_life: timedelta = timedelta(hours=24)
    memory_interval: timedelta = timedelta(hours=24)
    """Of each such interval, the peak of each container's memory usage is a sample."""
    oom_bump_up_ratio: float = 1.2
    oom_min_bump_up_bytes: int = 100 << 20


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """How the amounts of one resource are computed: CPU in milli-cores, memory in bytes."""

    pod_minimum: int
    """The minimum of all containers of a pod together, which share it equally."""
    step: int
    """Amounts are rounded up to a multiple of this."""
    target_percentile: float = 0.9
    """The percentiles are fractions from 0 to 1."""
    lower_percentile: float = 0.5
    upper_percentile: float = 0.95


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """How amounts are computed from the remembered usage."""

    cpu: ResourceOptions = ResourceOptions(pod_minimum=25, step=1)
    memory: ResourceOptions = ResourceOptions(pod_minimum=250 << 20, step=1 << 20)
    margin_fraction: float = 0.15
    confidence_interval: timedelta = timedelta(hours=24)
    """With this much history the confidence is 1."""
