"""What a container should request: percentiles of its usage, with a margin, within the bounds of its policy. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from koordinator.api.resource_names import CPU, MEMORY
from koordinator.manager.recommender.container_model import ContainerModel, History
from koordinator.manager.recommender.options import EstimateOptions, ResourceOptions
from koordinator.manager.recommender.policy import ContainerRules
from koordinator.model.decaying_histogram import DecayingHistogram

_MILLI: Final = 1000
_MINUTES_A_DAY: Final = 1440
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one resource of one container: CPU in milli-cores, memory in bytes."""

    target: int
    lower: int
    upper: int | None
    """None as long as there is no history to bound it by."""
    uncapped_target: int
    """The target without the policy's minAllowed and maxAllowed."""


def confidence(history: History, interval: timedelta) -> float:
    """How many ``interval`` of history there are: by time and, for gaps, by the number of samples, one a minute."""
    if history.first is None or history.last is None:
        return 0.0
    by_time = (history.last - history.first) / interval
    by_count = history.count / _MINUTES_A_DAY * (_DAY / interval)
    return min(by_time, by_count)


def estimate(
    model: ContainerModel, rules: ContainerRules, options: EstimateOptions, containers: int
) -> Mapping[str, Estimate]:
    """Resource -> estimate, for the resources that the policy controls and that have samples.

    ``containers`` is the number of containers of the pod.
    """
    sure = confidence(model.history, options.confidence_interval)
    margin = 1 + (options.margin_fraction if rules.margin_fraction is None else rules.margin_fraction)
    histograms = ((CPU, model.cpu, _MILLI * margin, options.cpu), (MEMORY, model.memory, margin, options.memory))
    return {
        resource: _Estimator(resource, rules, resource_options, containers).estimate(histogram, factor, sure)
        for resource, histogram, factor, resource_options in histograms
        if resource in rules.controlled and not histogram.is_empty
    }


class _Estimator:
    """The percentiles and the bounds of one resource of one container."""

    def __init__(self, resource: str, rules: ContainerRules, options: ResourceOptions, containers: int) -> None:
        self._target = rules.target_percentile.get(resource, options.target_percentile)
        self._bounds = rules.bounds_of(resource)
        self._options = options
        self._minimum = options.pod_minimum / containers

    def estimate(self, histogram: DecayingHistogram, factor: float, sure: float) -> Estimate:
        """``factor``: the margin, in amounts per unit of the histogram. ``sure`` is the confidence."""
        uncapped = self._rounded(histogram.percentile(self._target) * factor)
        target = self._bounds.clamp(uncapped)
        # The vertical pod autoscaler's factors: the less history, the wider the range. They are 0.6 and 289 after five
        # minutes, 1.0 and 2 after a day.
        narrowing = (1 + 0.001 / sure) ** -2 if sure > 0 else 0.0
        lower = self._bounds.clamp(
            self._rounded(histogram.percentile(self._options.lower_percentile) * factor * narrowing)
        )
        upper = self._bounds.maximum
        if sure > 0:
            widest = histogram.percentile(self._options.upper_percentile) * factor * (1 + 1 / sure)
            upper = self._bounds.clamp(self._rounded(widest))
        return Estimate(target, min(lower, target), None if upper is None else max(upper, target), uncapped)

    def _rounded(self, amount: float) -> int:
        """At least the minimum, up to a multiple of the step."""
        return math.ceil(max(amount, self._minimum) / self._options.step) * self._options.step
