"""The models: for each thing a histogram of its CPU and one of its memory, in which the past counts less and less.

Samples decay by the time that has passed, not by what a clock shows that somebody sets: a sample that bears a time of
next month would outweigh all others until then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from koordinator.koordlet.prediction.checkpoints import SavedModel
from koordinator.koordlet.prediction.observations import Usage
from koordinator.model.decaying_histogram import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    Checkpoint,
    CheckpointError,
    DecayingHistogram,
)

CPU_PEAK: Final = 0.95
MEMORY_PEAK: Final = 0.98
"""Which percentile of usage counts as the peak: a lack of memory kills, a lack of CPU only slows down."""


_FOLLOWED: Final = timedelta(minutes=1)
"""A clock that is set by less than this is followed: it changes no weight by as much as a thousandth."""


class Peak(NamedTuple):
    """Whole milli-CPU and whole bytes, both cut."""

    cpu: int
    memory: int


@dataclass(frozen=True, slots=True)
class HalfLives:
    """After how long a sample counts half."""

    cpu: timedelta = timedelta(hours=12)
    memory: timedelta = timedelta(hours=24)


@dataclass(slots=True)
class Model:
    """Of one thing. ``touched`` is the second of a monotonic clock at which it was last trained, or else restored."""

    cpu: DecayingHistogram
    memory: DecayingHistogram
    touched: float

    @property
    def peak(self) -> Peak:
        return Peak(int(self.cpu.percentile(CPU_PEAK) * 1000), int(self.memory.percentile(MEMORY_PEAK)))


class _SteadyTime:
    """The wall time, less what the clock has been set by since the process began."""

    def __init__(self) -> None:
        self.offset = timedelta()
        """To be added to the wall time."""
        self._last: tuple[datetime, float] | None = None

    def at(self, now: datetime, monotonic: float) -> datetime:
        """The steady time of this moment, by both clocks."""
        if self._last is not None:
            wall, second = self._last
            jump = now - wall - timedelta(seconds=monotonic - second)
            if abs(jump) >= _FOLLOWED:
                self.offset -= jump
        self._last = now, monotonic
        return now + self.offset


class Models:
    """All models of a node, by name."""

    def __init__(self, half_lives: HalfLives) -> None:
        self._half_lives = half_lives
        self._models: dict[str, Model] = {}
        self._time = _SteadyTime()

    def __len__(self) -> int:
        return len(self._models)

    def __contains__(self, name: object) -> bool:
        return name in self._models

    @property
    def names(self) -> Iterable[str]:
        return self._models.keys()

    def peak(self, name: str) -> Peak | None:
        """The forecast of one thing; None if it has no model."""
        model = self._models.get(name)
        return None if model is None else model.peak

    def train(self, usages: Mapping[str, Usage], now: datetime, monotonic: float) -> None:
        """Add one sample to the model of each thing that has a usage, and make the models that there are not yet."""
        at = self._time.at(now, monotonic)
        for name, usage in usages.items():
            model = self._models.get(name)
            if model is None:
                model = self._models[name] = self._empty(monotonic)
            model.cpu.add(usage.cpu, at)
            model.memory.add(usage.memory, at)
            model.touched = monotonic

    def restore(self, name: str, saved: SavedModel, now: datetime, monotonic: float) -> None:
        """Make a model of what was kept of it. CheckpointError, and no model, if one of the two is impossible.

        Half a model would be worse than none: an empty histogram says that the thing uses nothing. A checkpoint of the
        future counts as made now: whichever of the two clocks was wrong, it says nothing of the time in between.
        """
        model = self._empty(monotonic)
        at = self._time.at(now, monotonic)
        updated = min(saved.updated or now, now)
        for histogram, checkpoint, half_life in (
            (model.cpu, saved.cpu, self._half_lives.cpu),
            (model.memory, saved.memory, self._half_lives.memory),
        ):
            try:
                moved = _moved(checkpoint, updated - (saved.updated or now))
                _check_weight(moved, updated, half_life)
                histogram.restore(_moved(moved, at - now))
            except OverflowError:
                raise CheckpointError(f"referenceTimestamp is {checkpoint.reference}") from None
            if histogram.is_empty:
                raise CheckpointError("bucketWeights has no weight at all")
        self._models[name] = model

    def checkpoint(self, name: str, now: datetime, monotonic: float) -> SavedModel:
        """What to keep of a model, by the wall clock. KeyError if there is no such model."""
        model = self._models[name]
        back = now - self._time.at(now, monotonic)
        return SavedModel(_moved(model.cpu.checkpoint(), back), _moved(model.memory.checkpoint(), back), now)

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


def _moved(checkpoint: Checkpoint, by: timedelta) -> Checkpoint:
    return replace(checkpoint, reference=checkpoint.reference + by) if by else checkpoint


def _check_weight(checkpoint: Checkpoint, updated: datetime, half_life: timedelta) -> None:
    """CheckpointError if there is more weight than one sample a second could have had when the checkpoint was made.

    Then a program that goes by the wall clock has added samples while the clock was ahead.
    """
    if not (math.isfinite(checkpoint.total) and checkpoint.total > 0):
        return
    weight = math.log2(checkpoint.total) + (checkpoint.reference - updated) / half_life
    if weight > math.log2(max(half_life.total_seconds(), 1) / math.log(2) + 1):
        raise CheckpointError(f"totalWeight is {checkpoint.total}: some of the samples are of the future")
