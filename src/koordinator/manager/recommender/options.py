"""The options of the recommender and their flags, ``--recommender-*``: named like those of Kubernetes' vertical pod
autoscaler, with its defaults where it has the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from koordinator.base.option_flags import duration, group, integer, number, switch, text
from koordinator.kube.prometheus import check_server

TITLE: Final = "Recommender (feature Recommender)"
AUTO: Final = "auto"
METRICS_API: Final = "metrics-api"
NODE_METRIC: Final = "nodemetric"
SOURCES: Final = (AUTO, METRICS_API, NODE_METRIC)
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(hours=24)
_ADDRESS: Final = "recommender-prometheus-address"
_TOKEN_FILE: Final = "recommender-prometheus-token-file"  # noqa: S105 - a flag


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How usage is remembered."""

    cpu_half_life: timedelta = duration(
        "recommender-cpu-histogram-decay-half-life",
        _DAY,
        "A sample of CPU usage loses half of its weight in this time.",
        minimum=_MINUTE,
    )
    memory_half_life: timedelta = duration(
        "recommender-memory-histogram-decay-half-life",
        _DAY,
        "A peak of memory usage loses half of its weight in this time.",
        minimum=_MINUTE,
    )
    memory_interval: timedelta = duration(
        "recommender-memory-aggregation-interval",
        _DAY,
        "The peak memory usage of each such interval is one sample.",
        minimum=_MINUTE,
    )
    memory_interval_count: int = integer(
        "recommender-memory-aggregation-interval-count",
        8,
        "A container without samples for so many of these intervals is forgotten.",
        minimum=1,
    )
    oom_bump_up_ratio: float = number(
        "recommender-oom-bump-up-ratio",
        1.2,
        "A container that was killed for memory is assumed to need its usage times this.",
        minimum=1,
    )
    oom_min_bump_up_bytes: int = integer(
        "recommender-oom-min-bump-up-bytes", 100 << 20, "... and at least so many bytes more than its usage.", minimum=0
    )


def _percentile(kind: str, resource: str, default: float, use: str) -> float:
    help_text = f"The percentile of the {resource} usage, from 0 to 1, from which {use} is computed."
    return number(f"recommender-{kind}-{resource}-percentile", default, help_text, minimum=0, maximum=1)


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """How the amounts of one resource are computed: CPU in milli-cores, memory in bytes."""

    target_percentile: float = 0.9
    """The percentiles are fractions from 0 to 1."""
    lower_percentile: float = 0.5
    upper_percentile: float = 0.95
    pod_minimum: int = 0
    """The minimum of all containers of a pod together, which share it equally."""
    step: int = 1
    """Amounts are rounded up to a multiple of this."""


@dataclass(frozen=True, slots=True)
class CPUOptions(ResourceOptions):
    target_percentile: float = _percentile("target", "cpu", 0.9, "the recommendation")
    lower_percentile: float = _percentile("lower", "cpu", 0.5, "its lower bound")
    upper_percentile: float = _percentile("upper", "cpu", 0.95, "its upper bound")
    pod_minimum: int = integer(
        "recommender-pod-min-cpu-millicores",
        25,
        "The least CPU that is recommended for a pod; its containers share it equally.",
        minimum=0,
    )
    step: int = integer("recommender-round-cpu-millicores", 1, "CPU is rounded up to a multiple of this.", minimum=1)


@dataclass(frozen=True, slots=True)
class MemoryOptions(ResourceOptions):
    target_percentile: float = _percentile("target", "memory", 0.9, "the recommendation")
    lower_percentile: float = _percentile("lower", "memory", 0.5, "its lower bound")
    upper_percentile: float = _percentile("upper", "memory", 0.95, "its upper bound")
    pod_minimum: int = integer(
        "recommender-pod-min-memory-mb",
        250,
        "The least memory that is recommended for a pod, in MiB; its containers share it equally.",
        minimum=0,
        unit=1 << 20,
    )
    step: int = integer(
        "recommender-round-memory-bytes", 1 << 20, "Memory is rounded up to a multiple of this.", minimum=1
    )


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """How amounts are computed from the remembered usage."""

    cpu: ResourceOptions = group(TITLE, CPUOptions)
    memory: ResourceOptions = group(TITLE, MemoryOptions)
    margin_fraction: float = number(
        "recommender-margin-fraction",
        0.15,
        "The part by which a recommendation exceeds the percentile.",
        minimum=0,
    )
    confidence_interval: timedelta = duration(
        "recommender-confidence-interval",
        _DAY,
        "With less history than this the condition LowConfidence is True.",
        minimum=_MINUTE,
    )


@dataclass(frozen=True, slots=True)
class ResizeOptions:
    """How pods of Recommendations with the update modes Auto and InPlaceOrRecreate are resized in place."""

    threshold: float = number(
        "recommender-resize-threshold",
        0.1,
        "The part by which a request has to differ from the recommendation for a pod to be resized.",
        minimum=0,
    )
    raised_fraction: float = number(
        "recommender-resize-raise-fraction",
        1.0,
        "The part of a request by which one resize raises it at most; 1 doubles it.",
        minimum=0.01,
    )
    lowered_fraction: float = number(
        "recommender-resize-lower-fraction",
        0.25,
        "The part of a request by which one resize lowers it at most.",
        minimum=0.01,
        maximum=0.9,
    )
    watch: timedelta = duration(
        "recommender-resize-watch",
        timedelta(minutes=5),
        "The next pod of a workload is resized so long after the last one, if that one is well.",
        minimum=_SECOND,
    )
    hold: timedelta = duration(
        "recommender-resize-hold",
        timedelta(minutes=30),
        "A pod is resized again so long after its creation or its last resize, which is undone if the pod gets worse "
        "meanwhile.",
        minimum=_SECOND,
    )
    retry: timedelta = duration(
        "recommender-resize-retry",
        timedelta(hours=1),
        "A workload of which a resize was undone is left alone for so long, and twice as long each time, up to a day.",
        minimum=_SECOND,
    )
    evicted_after: timedelta = duration(
        "recommender-evict-after",
        timedelta(hours=12),
        "A younger pod is not evicted for a Recommendation with the update mode InPlaceOrRecreate.",
        minimum=_SECOND,
    )
    is_dry_run: bool = switch(
        "recommender-dry-run",
        False,
        "Resize and evict nothing: the log and the page of a Recommendation say what would be done.",
    )


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """Where the usage from before a Recommendation was created is read. Raises ConfigurationError for options that
    cannot be used together."""

    prometheus_address: str = text(
        _ADDRESS,
        "",
        "The URL of a Prometheus server, from which the usage before a Recommendation was created is read; empty: "
        "history begins with the Recommendation.",
        placeholder="URL",
    )
    token_file: str = text(
        _TOKEN_FILE,
        "",
        "The file with a bearer token for it, which is read for each query.",
        placeholder="file",
    )
    ca_file: str = text(
        "recommender-prometheus-ca-file",
        "",
        "The authority of its certificate; empty: those of the machine.",
        placeholder="file",
    )
    length: timedelta = duration(
        "recommender-history-length", timedelta(days=8), "How much history is read.", minimum=_MINUTE
    )
    step: timedelta = duration(
        "recommender-history-resolution",
        timedelta(hours=1),
        "One sample of history for each such step.",
        minimum=_MINUTE,
    )
    cpu_query: str = text(
        "recommender-history-cpu-query",
        'rate(container_cpu_usage_seconds_total{namespace="$namespace",pod=~"$pods",container!="",container!="POD"}'
        "[$step])",
        "The query for CPU usage in cores, with the labels pod and container. $namespace, $pods (a regular "
        "expression) and $step are replaced.",
        placeholder="PromQL",
    )
    memory_query: str = text(
        "recommender-history-memory-query",
        "max_over_time(container_memory_working_set_bytes"
        '{namespace="$namespace",pod=~"$pods",container!="",container!="POD"}[$step])',
        "The same for memory usage in bytes.",
        placeholder="PromQL",
    )

    def __post_init__(self) -> None:
        check_server(f"--{_ADDRESS}", self.prometheus_address, f"--{_TOKEN_FILE}", self.token_file)


@dataclass(frozen=True, slots=True)
class RecommenderOptions:
    """All options of the recommender."""

    interval: timedelta = duration(
        "recommender-interval",
        timedelta(minutes=1),
        "How often usage is sampled and recommendations are computed.",
        minimum=_SECOND,
    )
    source: str = text(
        "recommender-source",
        AUTO,
        "Where samples come from: metrics-api (metrics.k8s.io, usually served by metrics-server), nodemetric "
        "(NodeMetrics of koordlet), or auto, the first of these that has samples.",
        allowed=SOURCES,
    )
    checkpoint_interval: timedelta = duration(
        "recommender-checkpoint-interval",
        timedelta(minutes=10),
        "How often the model of each Recommendation is written to its ConfigMap.",
        minimum=_SECOND,
    )
    min_checkpoints: int = integer(
        "recommender-min-checkpoints",
        10,
        "How many ConfigMaps are written in each pass, even if that takes longer than the timeout.",
        minimum=1,
    )
    checkpoints_timeout: timedelta = duration(
        "recommender-checkpoints-timeout",
        timedelta(minutes=1),
        "After this time, the remaining ConfigMaps are written in the next pass.",
        minimum=_SECOND,
    )
    model: ModelOptions = group(TITLE, ModelOptions)
    estimate: EstimateOptions = group(TITLE, EstimateOptions)
    history: HistoryOptions = group(TITLE, HistoryOptions)
    resize: ResizeOptions = group(TITLE, ResizeOptions)

    @property
    def forgotten_after(self) -> timedelta:
        """A container without samples for so long is forgotten."""
        return self.model.memory_interval_count * self.model.memory_interval
