"""The options of the recommender, with the defaults of Kubernetes' vertical pod autoscaler where it has the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

AUTO: Final = "auto"
METRICS_API: Final = "metrics-api"
NODE_METRIC: Final = "nodemetric"
SOURCES: Final = (AUTO, METRICS_API, NODE_METRIC)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Which percentile of the usage each bound of a recommendation is; fractions from 0 to 1."""

    target: float = 0.9
    lower: float = 0.5
    upper: float = 0.95


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How usage is remembered."""

    cpu_half_life: timedelta = timedelta(hours=24)
    """A sample of CPU loses half of its weight in this time."""
    memory_half_life: timedelta = timedelta(hours=24)
    memory_interval: timedelta = timedelta(hours=24)
    """Of each such interval the peak of the memory usage of each container counts."""
    memory_intervals: int = 8
    """A container that has no samples for so many intervals is forgotten."""
    oom_bump_up_ratio: float = 1.2
    oom_min_bump_up_bytes: int = 100 << 20

    @property
    def window(self) -> timedelta:
        """For how long a container is remembered that has no samples any more."""
        return self.memory_interval * self.memory_intervals


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """How amounts are worked out of what is remembered."""

    cpu: Percentiles = Percentiles()
    memory: Percentiles = Percentiles()
    margin_fraction: float = 0.15
    pod_min_cpu_millicores: int = 25
    """At least this for all containers of a pod together, in equal parts."""
    pod_min_memory_bytes: int = 250 << 20
    confidence_interval: timedelta = timedelta(hours=24)
    """With so much history the confidence is 1."""
    round_cpu_millicores: int = 1
    round_memory_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """How often what is remembered is saved in the cluster."""

    interval: timedelta = timedelta(minutes=1)
    minimum: int = 10
    """So many are written in each pass, even when it takes longer than ``timeout``."""
    timeout: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class RecommenderOptions:
    interval: timedelta = timedelta(minutes=1)
    source: str = AUTO
    model: ModelOptions = ModelOptions()
    estimate: EstimateOptions = EstimateOptions()
    checkpoints: CheckpointOptions = CheckpointOptions()
