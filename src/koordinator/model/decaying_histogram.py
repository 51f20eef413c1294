"""A histogram in which a sample loses half of its weight with every half-life: the distribution of recent usage.

The algorithm is that of Kubernetes' vertical pod autoscaler, with the buckets, the rounding and the checkpoints of the
original, so that each can restore the other's checkpoints.
"""

from __future__ import annotations

import copy
import math
import operator
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from koordinator.base.errors import KoordinatorError

EPSILON: Final = 0.0001
"""A bucket of less weight counts as empty."""
RATIO: Final = 1.05
"""Each bucket is so many times as wide as the one before it."""

_LARGEST_EXPONENT: Final = 100
"""The weight of a new sample doubles with each half-life since the reference time, up to 2 to this power."""
_CHECKPOINT_WEIGHT: Final = 10000
"""The weight of the heaviest bucket in a checkpoint; others are in proportion."""
_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)


class CheckpointError(KoordinatorError):
    """A checkpoint that does not fit the histogram; the histogram is as it was."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Exponential buckets: the first ends at ``first``, the last begins at or above ``maximum``."""

    first: float
    maximum: float
    count: int = field(init=False)

    def __post_init__(self) -> None:
        steps = math.log(self.maximum * (RATIO - 1) / self.first + 1) / math.log(RATIO)
        object.__setattr__(self, "count", math.ceil(steps) + 1)

    def start(self, bucket: int) -> float:
        """The least value of a bucket: the sum of the widths of those before it."""
        return self.first * (RATIO**bucket - 1) / (RATIO - 1) if bucket else 0.0

    def find(self, value: float) -> int:
        """The bucket of a value; the last one for all that is larger."""
        if value < self.first:
            return 0
        return min(int(math.log(value * (RATIO - 1) / self.first + 1) / math.log(RATIO)), self.count - 1)


CPU_BUCKETS: Final = Buckets(first=0.025, maximum=1024.0)
"""In cores."""
MEMORY_BUCKETS: Final = Buckets(first=5.0 * (1 << 20), maximum=float(1 << 41))
"""In bytes."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is stored of a histogram across a restart: weights by bucket, in proportion, and their sum."""

    reference: datetime
    weights: Mapping[int, int]
    total: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the weighted samples, in the unit of the histogram."""

    mean: float
    standard_deviation: float
    maximum: float


class DecayingHistogram:
    """Weights by bucket. ``half_life`` is a positive duration."""

    def __init__(self, buckets: Buckets, half_life: timedelta) -> None:
        self._buckets = buckets
        self._half_life = half_life
        self._reference = _YEAR_ONE
        # Packed: koordlet has several for each pod.
        self._weights = array("d", bytes(8 * buckets.count))
        self._total = 0.0
        # The first and the last bucket that are not empty; the other way round as long as all are.
        self._lowest = buckets.count - 1
        self._highest = 0

    @property
    def half_life(self) -> timedelta:
        return self._half_life

    @property
    def is_empty(self) -> bool:
        return self._weights[self._lowest] < EPSILON

    def add(self, value: float, at: datetime, weight: float = 1.0) -> None:
        """Add a sample. Its time may be before that of others: it weighs less then. ``weight`` is not negative."""
        bucket = self._buckets.find(value)
        weight *= self._weight_at(at)
        self._weights[bucket] += weight
        self._total += weight
        if self._weights[bucket] >= EPSILON:
            self._lowest = min(self._lowest, bucket)
            self._highest = max(self._highest, bucket)

    def subtract(self, value: float, at: datetime, weight: float = 1.0) -> None:
        """Remove a sample that was added with the same value, time and weight. No weight falls below 0."""
        bucket = self._buckets.find(value)
        weight *= self._weight_at(at)
        self._weights[bucket] = _less(self._weights[bucket], weight)
        self._total = _less(self._total, weight)
        self._shrink()

    def copy(self) -> DecayingHistogram:
        """Return an independent histogram with the same content."""
        copied = copy.copy(self)
        copied._weights = self._weights[:]
        return copied

    def percentile(self, fraction: float) -> float:
        """The end of the bucket in which the cumulative weight reaches ``fraction`` of the total.

        0 if nothing was added; the start of the last bucket, which has no end.
        """
        if self.is_empty:
            return 0.0
        threshold = fraction * self._total
        cumulative = 0.0
        bucket = self._lowest
        while bucket < self._highest:
            cumulative += self._weights[bucket]
            if cumulative >= threshold:
                break
            bucket += 1
        return self._buckets.start(min(bucket + 1, self._buckets.count - 1))

    def summary(self) -> Summary:
        """All 0 if nothing was added. Each bucket counts as its middle."""
        if self.is_empty:
            return Summary(0.0, 0.0, 0.0)
        occupied = range(self._lowest, self._highest + 1)
        middles = [(self._buckets.start(each) + self._buckets.start(each + 1)) / 2 for each in occupied]
        weights = [self._weights[each] for each in occupied]
        total = sum(weights)
        mean = sum(map(operator.mul, middles, weights)) / total
        variance = sum(weight * (middle - mean) ** 2 for middle, weight in zip(middles, weights, strict=True)) / total
        return Summary(mean, math.sqrt(variance), self.percentile(1.0))

    def checkpoint(self) -> Checkpoint:
        """Weights are rounded to a ten-thousandth of the heaviest; those that become 0 are left out."""
        occupied = range(self._lowest, self._highest + 1)
        heaviest = max((self._weights[bucket] for bucket in occupied), default=0.0)
        rounded = (
            {bucket: math.floor(self._weights[bucket] * _CHECKPOINT_WEIGHT / heaviest + 0.5) for bucket in occupied}
            if heaviest
            else {}
        )
        weights = {bucket: weight for bucket, weight in rounded.items() if weight}
        return Checkpoint(self._reference, weights, self._total)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Add the content of a checkpoint. Raises CheckpointError if its buckets differ, or its weights are
        impossible."""
        if not (math.isfinite(checkpoint.total) and checkpoint.total >= 0):
            raise CheckpointError(f"totalWeight is {checkpoint.total}: a number from 0 on is expected")
        for bucket, weight in checkpoint.weights.items():
            if not 0 <= bucket < self._buckets.count:
                raise CheckpointError(f"bucketWeights names bucket {bucket}: there are 0 to {self._buckets.count - 1}")
            if weight < 0:
                raise CheckpointError(f"bucketWeights has {weight} for bucket {bucket}: a number from 0 on is expected")
        self._reference = checkpoint.reference
        parts = sum(checkpoint.weights.values())
        if not parts:
            return
        for bucket, weight in checkpoint.weights.items():
            self._weights[bucket] += weight * checkpoint.total / parts
            self._lowest = min(self._lowest, bucket)
            self._highest = max(self._highest, bucket)
        self._total += checkpoint.total

    def _weight_at(self, at: datetime) -> float:
        if at - self._reference > _LARGEST_EXPONENT * self._half_life:
            self._move_reference(at)
        return math.exp2((at - self._reference) / self._half_life)

    def _move_reference(self, at: datetime) -> None:
        """Move the reference time to a later one: all weights shrink by the same factor, before they get too large."""
        # A multiple of the half-life since the year 1, so that the factor is a power of 2, which costs no precision.
        reference = _YEAR_ONE + math.floor((at - _YEAR_ONE) / self._half_life + 0.5) * self._half_life
        exponent = math.floor((self._reference - reference) / self._half_life + 0.5)
        self._weights = array("d", [math.ldexp(weight, exponent) for weight in self._weights])
        self._total = math.ldexp(self._total, exponent)
        self._reference = reference
        self._shrink()

    def _shrink(self) -> None:
        """Narrow the range from ``_lowest`` to ``_highest`` to the buckets that are not empty."""
        while self._lowest < self._buckets.count - 1 and self._weights[self._lowest] < EPSILON:
            self._lowest += 1
        while self._highest > 0 and self._weights[self._highest] < EPSILON:
            self._highest -= 1


def _less(weight: float, subtracted: float) -> float:
    """The difference; 0 if it is below EPSILON, which is what rounding leaves when all samples are removed."""
    left = weight - subtracted
    return left if left >= EPSILON else 0.0
