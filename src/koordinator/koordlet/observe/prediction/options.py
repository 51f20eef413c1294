"""How peaks are forecast: the ``--prediction-…`` flags, with the original's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from koordinator.base.option_flags import duration, group, integer, seconds

PREDICTION: Final = "Prediction"
"""The heading of the flags."""
_A_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class HalfLives:
    """After how long a sample counts half."""

    cpu: timedelta = duration(
        "prediction-cpu-histogram-decay-halflife",
        timedelta(hours=12),
        "After how long a sample of CPU usage counts half.",
        minimum=_A_SECOND,
    )
    memory: timedelta = duration(
        "prediction-memory-histogram-decay-halflife",
        timedelta(hours=24),
        "After how long a sample of memory usage counts half.",
        minimum=_A_SECOND,
    )


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """Durations without a type of their own are in seconds."""

    cold_start: timedelta = duration(
        "prediction-cold-start-duration", timedelta(hours=24), "How long a new pod's request counts as its peak."
    )
    margin_percent: int = integer(
        "prediction-safety-margin-percent", 10, "How much is added to each forecast, in percent.", minimum=0
    )
    half_lives: HalfLives = group(PREDICTION, HalfLives)
    training_interval: float = seconds("prediction-training-interval", 60.0, "How often the models learn.", minimum=1.0)
    expiration: float = seconds(
        "prediction-model-expiration-duration", 1800.0, "After how long without a sample a model is dropped."
    )
    checkpoint_interval: float = seconds(
        "prediction-model-checkpoint-interval", 600.0, "How often each model is written to its file."
    )
    checkpoints_per_step: int = integer(
        "prediction-model-checkpoint-max-per-step", 12, "How many models are written at once, each minute.", minimum=1
    )
