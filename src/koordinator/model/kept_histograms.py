"""Histograms over restarts: they decay by steady time, and their checkpoints are dated by the wall clock.

A checkpoint of the future counts as made now: whichever of the two clocks was wrong, it says nothing of the time in
between.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from koordinator.model.decaying_histogram import Checkpoint, CheckpointError, DecayingHistogram

_FIRST: Final = datetime(1000, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""So far from the ends of the calendar, times can be moved by whatever a clock is set by."""


def moved(checkpoint: Checkpoint, by: timedelta) -> Checkpoint:
    """The same, of another time; one without samples is of no time."""
    return replace(checkpoint, reference=checkpoint.reference + by) if by and checkpoint.weights else checkpoint


def ahead(made: datetime | None, now: datetime) -> timedelta:
    """How far in the future a checkpoint was made; nothing for one that does not say when."""
    return max((made or now) - now, timedelta())


def restore(
    histogram: DecayingHistogram, checkpoint: Checkpoint, until: datetime, by: timedelta, most_weight: float
) -> None:
    """Add the content of a checkpoint, all of whose samples are dated ``until`` or before, moved ``by`` a duration.

    CheckpointError, beside those of the histogram, if it has more than ``most_weight``, by which samples can have
    weighed at that time. Then a program that goes by the wall clock has added samples while the clock was ahead.
    """
    try:
        found = moved(checkpoint, by)
    except OverflowError:
        raise CheckpointError(f"referenceTimestamp is {checkpoint.reference}") from None
    if found.weights and not _FIRST <= found.reference <= _LAST:
        raise CheckpointError(f"referenceTimestamp is {checkpoint.reference}")
    _check_weight(checkpoint, until, histogram.half_life, most_weight)
    histogram.restore(found)


def _check_weight(checkpoint: Checkpoint, until: datetime, half_life: timedelta, most: float) -> None:
    if not (math.isfinite(checkpoint.total) and checkpoint.total > 0):
        return
    if math.log2(checkpoint.total) + (checkpoint.reference - until) / half_life > math.log2(most):
        raise CheckpointError(f"totalWeight is {checkpoint.total}: some of the samples are of the future")
