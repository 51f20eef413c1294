"""The flags of the recommender, ``--recommender-*``; ours, named like those of the vertical pod autoscaler."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from koordinator.base.errors import ConfigurationError
from koordinator.base.flag_types import Flag, FlagGroup
from koordinator.base.flags import FlagValues
from koordinator.base.listen_address import is_loopback
from koordinator.manager.recommender.options import (
    SOURCES,
    EstimateOptions,
    HistoryOptions,
    ModelOptions,
    RecommenderOptions,
    ResourceOptions,
)

_DEFAULTS: Final = RecommenderOptions()
_MODEL: Final = _DEFAULTS.model
_ESTIMATE: Final = _DEFAULTS.estimate
_HISTORY: Final = _DEFAULTS.history
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_MIB: Final = 1 << 20
_ADDRESS: Final = "recommender-prometheus-address"
_TOKEN_FILE: Final = "recommender-prometheus-token-file"  # noqa: S105 - a flag


class _Percentiles:
    """``--recommender-target-cpu-percentile`` and its like."""

    def __init__(self, group: FlagGroup, resource: str, defaults: ResourceOptions) -> None:
        def flag(kind: str, default: float, use: str) -> Flag[float]:
            text = f"The percentile of the {resource} usage, from 0 to 1, from which {use} is computed."
            name = f"recommender-{kind}-{resource}-percentile"
            return group.number(name, default, text, minimum=0, maximum=1)

        self.target = flag("target", defaults.target_percentile, "the recommendation")
        self.lower = flag("lower", defaults.lower_percentile, "its lower bound")
        self.upper = flag("upper", defaults.upper_percentile, "its upper bound")


class RecommenderFlags:
    """How samples are collected, remembered and turned into recommendations."""

    def __init__(self, group: FlagGroup) -> None:
        self._loop(group)
        self._model(group)
        self._estimate(group)
        self._history(group)

    def _loop(self, group: FlagGroup) -> None:
        self._interval = group.duration(
            "recommender-interval",
            _DEFAULTS.interval,
            "How often usage is sampled and recommendations are computed.",
            minimum=_SECOND,
        )
        self._source = group.string(
            "recommender-source",
            _DEFAULTS.source,
            "Where samples come from: metrics-api (metrics.k8s.io, usually served by metrics-server), nodemetric "
            "(NodeMetrics of koordlet), or auto, the first of these that has samples.",
            allowed=SOURCES,
        )
        self._checkpoint_interval = group.duration(
            "recommender-checkpoint-interval",
            _DEFAULTS.checkpoint_interval,
            "How often the model of each Recommendation is written to its ConfigMap.",
            minimum=_SECOND,
        )
        self._min_checkpoints = group.integer(
            "recommender-min-checkpoints",
            _DEFAULTS.min_checkpoints,
            "How many ConfigMaps are written in each pass, even if that takes longer than the timeout.",
            minimum=1,
        )
        self._checkpoints_timeout = group.duration(
            "recommender-checkpoints-timeout",
            _DEFAULTS.checkpoints_timeout,
            "After this time, the remaining ConfigMaps are written in the next pass.",
            minimum=_SECOND,
        )

    def _model(self, group: FlagGroup) -> None:
        self._cpu_half_life = group.duration(
            "recommender-cpu-histogram-decay-half-life",
            _MODEL.cpu_half_life,
            "A sample of CPU usage loses half of its weight in this time.",
            minimum=_MINUTE,
        )
        self._memory_half_life = group.duration(
            "recommender-memory-histogram-decay-half-life",
            _MODEL.memory_half_life,
            "A peak of memory usage loses half of its weight in this time.",
            minimum=_MINUTE,
        )
        self._memory_interval = group.duration(
            "recommender-memory-aggregation-interval",
            _MODEL.memory_interval,
            "The peak memory usage of each such interval is one sample.",
            minimum=_MINUTE,
        )
        self._memory_interval_count = group.integer(
            "recommender-memory-aggregation-interval-count",
            _DEFAULTS.memory_interval_count,
            "A container without samples for so many of these intervals is forgotten.",
            minimum=1,
        )
        self._bump_up_ratio = group.number(
            "recommender-oom-bump-up-ratio",
            _MODEL.oom_bump_up_ratio,
            "A container that was killed for memory is assumed to need its usage times this.",
            minimum=1,
        )
        self._min_bump_up = group.integer(
            "recommender-oom-min-bump-up-bytes",
            _MODEL.oom_min_bump_up_bytes,
            "... and at least so many bytes more than its usage.",
            minimum=0,
        )

    def _estimate(self, group: FlagGroup) -> None:
        self._cpu = _Percentiles(group, "cpu", _ESTIMATE.cpu)
        self._memory = _Percentiles(group, "memory", _ESTIMATE.memory)
        self._margin = group.number(
            "recommender-margin-fraction",
            _ESTIMATE.margin_fraction,
            "The part by which a recommendation exceeds the percentile.",
            minimum=0,
        )
        self._confidence_interval = group.duration(
            "recommender-confidence-interval",
            _ESTIMATE.confidence_interval,
            "With less history than this the condition LowConfidence is True.",
            minimum=_MINUTE,
        )
        self._min_cpu = group.integer(
            "recommender-pod-min-cpu-millicores",
            _ESTIMATE.cpu.pod_minimum,
            "The least CPU that is recommended for a pod; its containers share it equally.",
            minimum=0,
        )
        self._min_memory = group.integer(
            "recommender-pod-min-memory-mb",
            _ESTIMATE.memory.pod_minimum // _MIB,
            "The least memory that is recommended for a pod, in MiB; its containers share it equally.",
            minimum=0,
        )
        self._round_cpu = group.integer(
            "recommender-round-cpu-millicores",
            _ESTIMATE.cpu.step,
            "CPU is rounded up to a multiple of this.",
            minimum=1,
        )
        self._round_memory = group.integer(
            "recommender-round-memory-bytes",
            _ESTIMATE.memory.step,
            "Memory is rounded up to a multiple of this.",
            minimum=1,
        )

    def _history(self, group: FlagGroup) -> None:
        self._address = group.string(
            _ADDRESS,
            _HISTORY.prometheus_address,
            "The URL of a Prometheus server, from which the usage before a Recommendation was created is read; empty: "
            "history begins with the Recommendation.",
            placeholder="URL",
        )
        self._token_file = group.string(
            _TOKEN_FILE,
            _HISTORY.token_file,
            "The file with a bearer token for it, which is read for each query.",
            placeholder="file",
        )
        self._ca_file = group.string(
            "recommender-prometheus-ca-file",
            _HISTORY.ca_file,
            "The authority of its certificate; empty: those of the machine.",
            placeholder="file",
        )
        self._length = group.duration(
            "recommender-history-length", _HISTORY.length, "How much history is read.", minimum=_MINUTE
        )
        self._step = group.duration(
            "recommender-history-resolution",
            _HISTORY.step,
            "One sample of history for each such step.",
            minimum=_MINUTE,
        )
        self._cpu_query = group.string(
            "recommender-history-cpu-query",
            _HISTORY.cpu_query,
            "The query for CPU usage in cores, with the labels pod and container. $namespace, $pods (a regular "
            "expression) and $step are replaced.",
            placeholder="PromQL",
        )
        self._memory_query = group.string(
            "recommender-history-memory-query",
            _HISTORY.memory_query,
            "The same for memory usage in bytes.",
            placeholder="PromQL",
        )

    def options(self, given: FlagValues) -> RecommenderOptions:
        """Raises ConfigurationError for flags that contradict each other."""
        history = HistoryOptions(
            prometheus_address=_checked_address(given[self._address]),
            token_file=_checked_token_file(given[self._token_file], given[self._address]),
            ca_file=given[self._ca_file],
            length=given[self._length],
            step=given[self._step],
            cpu_query=given[self._cpu_query],
            memory_query=given[self._memory_query],
        )
        return RecommenderOptions(
            interval=given[self._interval],
            source=given[self._source],
            model=ModelOptions(
                cpu_half_life=given[self._cpu_half_life],
                memory_half_life=given[self._memory_half_life],
                memory_interval=given[self._memory_interval],
                oom_bump_up_ratio=given[self._bump_up_ratio],
                oom_min_bump_up_bytes=given[self._min_bump_up],
            ),
            estimate=EstimateOptions(
                cpu=_resource(given, self._cpu, given[self._min_cpu], given[self._round_cpu]),
                memory=_resource(given, self._memory, given[self._min_memory] * _MIB, given[self._round_memory]),
                margin_fraction=given[self._margin],
                confidence_interval=given[self._confidence_interval],
            ),
            memory_interval_count=given[self._memory_interval_count],
            checkpoint_interval=given[self._checkpoint_interval],
            min_checkpoints=given[self._min_checkpoints],
            checkpoints_timeout=given[self._checkpoints_timeout],
            history=history,
        )


def _resource(given: FlagValues, percentiles: _Percentiles, pod_minimum: int, step: int) -> ResourceOptions:
    return ResourceOptions(
        pod_minimum=pod_minimum,
        step=step,
        target_percentile=given[percentiles.target],
        lower_percentile=given[percentiles.lower],
        upper_percentile=given[percentiles.upper],
    )


def _checked_address(text: str) -> str:
    if text and urlsplit(text).scheme not in ("http", "https"):
        raise ConfigurationError(f"--{_ADDRESS}", text, "write a URL such as http://prometheus.monitoring:9090")
    return text


def _checked_token_file(path: str, address: str) -> str:
    url = urlsplit(address)
    if path and url.scheme == "http" and not is_loopback(url.hostname or ""):
        raise ConfigurationError(
            f"--{_TOKEN_FILE}", path, f"a token is not sent in plain text: --{_ADDRESS} must begin with https://"
        )
    return path
