"""The options of the recommender, with the defaults of Kubernetes' vertical pod autoscaler where it has the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final


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


AUTO: Final = "auto"
METRICS_API: Final = "metrics-api"
NODE_METRIC: Final = "nodemetric"
SOURCES: Final = (AUTO, METRICS_API, NODE_METRIC)


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """Where the usage from before a Recommendation was created is read."""

    prometheus_address: str = ""
    """The URL of a Prometheus server; empty: history begins with the Recommendation."""
    token_file: str = ""
    """The file with the bearer token; it is read for each query, since tokens of service accounts expire."""
    ca_file: str = ""
    """The authority of the server's certificate; empty: those of the machine are trusted."""
    length: timedelta = timedelta(days=8)
    step: timedelta = timedelta(hours=1)
    cpu_query: str = (
        'rate(container_cpu_usage_seconds_total{namespace="$namespace",pod=~"$pods",container!="",container!="POD"}'
        "[$step])"
    )
    memory_query: str = (
        "max_over_time(container_memory_working_set_bytes"
        '{namespace="$namespace",pod=~"$pods",container!="",container!="POD"}[$step])'
    )


@dataclass(frozen=True, slots=True)
class RecommenderOptions:
    """All options of the recommender."""

    interval: timedelta = timedelta(minutes=1)
    """How often samples are collected and recommendations are computed."""
    source: str = AUTO
    """One of SOURCES; AUTO is the first of the others that has samples."""
    model: ModelOptions = ModelOptions()
    estimate: EstimateOptions = EstimateOptions()
    memory_interval_count: int = 8
    """A container without samples for so many memory intervals is forgotten."""
    checkpoint_interval: timedelta = timedelta(minutes=10)
    """How often the model of each Recommendation is stored."""
    min_checkpoints: int = 10
    """So many models are stored in one pass even if that takes longer than ``checkpoints_timeout``."""
    checkpoints_timeout: timedelta = timedelta(minutes=1)
    history: HistoryOptions = HistoryOptions()

    @property
    def forgotten_after(self) -> timedelta:
        """A container without samples for so long is forgotten."""
        return self.memory_interval_count * self.model.memory_interval
