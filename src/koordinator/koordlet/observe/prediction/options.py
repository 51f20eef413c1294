"""How peaks are forecast: the ``--prediction-…`` flags, with the original's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from koordinator.base.flag_types import FlagGroup
from koordinator.base.flags import FlagValues
from koordinator.koordlet.observe.prediction.models import HalfLives

_A_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """Durations without a type of their own are in seconds."""

    cold_start: timedelta = timedelta(hours=24)
    margin_percent: int = 10
    half_lives: HalfLives = field(default_factory=HalfLives)
    training_interval: float = 60.0
    expiration: float = 1800.0
    checkpoint_interval: float = 600.0
    checkpoints_per_step: int = 12


class PredictionFlags:
    """The flags, in one group of the help text."""

    def __init__(self, group: FlagGroup) -> None:
        default = PredictionOptions()
        self.folder = group.string(
            "prediction-checkpoint-filepath",
            "/prediction-checkpoints",
            "Where what was learned is kept over restarts.",
            placeholder="folder",
        )
        self._cold_start = group.duration(
            "prediction-cold-start-duration", default.cold_start, "How long a new pod's request counts as its peak."
        )
        self._margin = group.integer(
            "prediction-safety-margin-percent",
            default.margin_percent,
            "How much is added to each forecast, in percent.",
            minimum=0,
        )
        self._cpu = group.duration(
            "prediction-cpu-histogram-decay-halflife",
            default.half_lives.cpu,
            "After how long a sample of CPU usage counts half.",
            minimum=_A_SECOND,
        )
        self._memory = group.duration(
            "prediction-memory-histogram-decay-halflife",
            default.half_lives.memory,
            "After how long a sample of memory usage counts half.",
            minimum=_A_SECOND,
        )
        self._training = group.duration(
            "prediction-training-interval",
            timedelta(seconds=default.training_interval),
            "How often the models learn.",
            minimum=_A_SECOND,
        )
        self._expiration = group.duration(
            "prediction-model-expiration-duration",
            timedelta(seconds=default.expiration),
            "After how long without a sample a model is dropped.",
        )
        self._checkpoint = group.duration(
            "prediction-model-checkpoint-interval",
            timedelta(seconds=default.checkpoint_interval),
            "How often each model is written to its file.",
        )
        self._per_step = group.integer(
            "prediction-model-checkpoint-max-per-step",
            default.checkpoints_per_step,
            "How many models are written at once, each minute.",
            minimum=1,
        )

    def options(self, given: FlagValues) -> PredictionOptions:
        """What the command line says."""
        return PredictionOptions(
            cold_start=given[self._cold_start],
            margin_percent=given[self._margin],
            half_lives=HalfLives(given[self._cpu], given[self._memory]),
            training_interval=given[self._training].total_seconds(),
            expiration=given[self._expiration].total_seconds(),
            checkpoint_interval=given[self._checkpoint].total_seconds(),
            checkpoints_per_step=given[self._per_step],
        )
