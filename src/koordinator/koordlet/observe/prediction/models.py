"""The models: for each thing a histogram of its CPU and one of its memory, in which the past counts less and less, by
steady time; and what they learn of one training interval, one pair of usages for each thing.

The names of models are the original's, since they are the names of checkpoint files, too: a pod's is its UID.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from koordinator.api.priority import PriorityClass
from koordinator.base.clock import SteadyTime
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache, Samples
from koordinator.koordlet.observe.prediction.checkpoints import SavedModel
from koordinator.koordlet.observe.prediction.options import HalfLives
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.model.decaying_histogram import CPU_BUCKETS, MEMORY_BUCKETS, CheckpointError, DecayingHistogram
from koordinator.model.kept_histograms import ahead, moved, restore

NODE_MODEL: Final = "__node__"
_PERCENT: Final = 90
"""Of the samples of an interval; a single spike of a second is no peak."""
CPU_PEAK: Final = 0.95
MEMORY_PEAK: Final = 0.98
"""Which percentile of usage counts as the peak: a lack of memory kills, a lack of CPU only slows down."""


class Peak(NamedTuple):
    """Whole milli-CPU and whole bytes, both cut."""

    cpu: int
    memory: int


@dataclass(slots=True)
class Model:
    """Of one thing. ``touched`` is the second of a monotonic clock at which it was last trained, or else restored."""

    cpu: DecayingHistogram
    memory: DecayingHistogram
    touched: float

    @property
    def peak(self) -> Peak:
        return Peak(int(self.cpu.percentile(CPU_PEAK) * 1000), int(self.memory.percentile(MEMORY_PEAK)))


class Models:
    """All models of a node, by name."""

    def __init__(self, half_lives: HalfLives, time: SteadyTime) -> None:
        self._half_lives = half_lives
        self._models: dict[str, Model] = {}
        self._time = time

    @property
    def names(self) -> Iterable[str]:
        return self._models.keys()

    def peak(self, name: str) -> Peak | None:
        model = self._models.get(name)
        return None if model is None else model.peak

    def train(self, usages: Mapping[str, Usage], now: datetime, monotonic: float) -> None:
        """Add one sample to the model of each thing that has a usage, and make the models that there are not yet."""
        at = now + self._time.offset
        for name, usage in usages.items():
            model = self._models.get(name)
            if model is None:
                model = self._models[name] = self._empty(monotonic)
            model.cpu.add(usage.cpu, at)
            model.memory.add(usage.memory, at)
            model.touched = monotonic

    def restore(self, name: str, saved: SavedModel, now: datetime, monotonic: float) -> None:
        """Make a model of what was kept of it. CheckpointError, and no model, if one of the two is impossible.

        Half a model would be worse than none: an empty histogram says that the thing uses nothing.
        """
        model = self._empty(monotonic)
        early = ahead(saved.updated, now)
        for histogram, checkpoint in ((model.cpu, saved.cpu), (model.memory, saved.memory)):
            by = self._time.offset - early
            restore(histogram, checkpoint, saved.updated or now, by, _most_weight(histogram.half_life))
            if histogram.is_empty:
                raise CheckpointError("bucketWeights has no weight at all")
        self._models[name] = model

    def checkpoint(self, name: str, now: datetime) -> SavedModel:
        """What to keep of a model, by the wall clock. KeyError if there is no such model."""
        model, back = self._models[name], -self._time.offset
        return SavedModel(moved(model.cpu.checkpoint(), back), moved(model.memory.checkpoint(), back), now)

    def drop_expired(self, monotonic: float, lifetime: float) -> list[str]:
        """Forget what has not been trained for ``lifetime`` seconds, such as pods that have ended; their names."""
        expired = [name for name, model in self._models.items() if monotonic - model.touched > lifetime]
        for name in expired:
            del self._models[name]
        return expired

    def _empty(self, monotonic: float) -> Model:
        return Model(
            DecayingHistogram(CPU_BUCKETS, self._half_lives.cpu),
            DecayingHistogram(MEMORY_BUCKETS, self._half_lives.memory),
            monotonic,
        )


def _most_weight(half_life: timedelta) -> float:
    """Of one sample a second since ever."""
    return max(half_life.total_seconds(), 1) / math.log(2) + 1


def node_item_model(item: str) -> str:
    """The name of the model of a part of the node: of the pods of a priority class, or of the system."""
    return f"__node-{item}__"


SYSTEM_MODEL: Final = node_item_model("sys")
NODE_MODELS: Final = frozenset({NODE_MODEL, SYSTEM_MODEL, *(node_item_model(item.value) for item in PriorityClass)})
"""All models but those of pods."""


@dataclass(frozen=True, slots=True)
class Usage:
    """``cpu`` in cores, ``memory`` in bytes without page cache."""

    cpu: float
    memory: float

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpu + other.cpu, self.memory + other.memory)


_NOTHING: Final = Usage(0.0, 0.0)


def observe(cache: RingMetricCache, pods: Sequence[NodePod], start: int, end: int) -> dict[str, Usage]:
    """Usages by model, of the samples from ``start`` to ``end`` (ms).

    A thing without samples is absent: nothing is known of it. A priority class without any pod uses nothing; one of
    whose pods none has samples is absent, as just after a restart, when the usage of 0 would be made up.
    """
    learned: dict[str, Usage] = {}
    classes: dict[PriorityClass, Usage | None] = {}
    all_pods = _NOTHING
    for pod in pods:
        usage = _usage(
            cache.select(kinds.POD_CPU_USAGE, start, end, pod_uid=pod.uid),
            cache.select(kinds.POD_MEMORY_USAGE, start, end, pod_uid=pod.uid),
        )
        if usage is None:
            classes.setdefault(pod.priority_class, None)
            continue
        learned[pod.uid] = usage
        classes[pod.priority_class] = (classes.get(pod.priority_class) or _NOTHING) + usage
        all_pods += usage
    for item in PriorityClass:
        of_class = classes.get(item, _NOTHING)
        if of_class is not None:
            learned[node_item_model(item.value)] = of_class
    node = _usage(cache.select(kinds.NODE_CPU_USAGE, start, end), cache.select(kinds.NODE_MEMORY_USAGE, start, end))
    if node is not None:
        learned[NODE_MODEL] = node
        learned[SYSTEM_MODEL] = Usage(max(node.cpu - all_pods.cpu, 0.0), max(node.memory - all_pods.memory, 0.0))
    return learned


def _usage(cpu: Samples, memory: Samples) -> Usage | None:
    return Usage(cpu.percentile(_PERCENT), memory.percentile(_PERCENT)) if cpu and memory else None
