"""From moments and CPU seconds to figures, from figures to ratios, and whether these are what is required."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from benchmarks.cases import Requirement


@dataclass(frozen=True, slots=True)
class Figures:
    """One contender in one case."""

    pods_per_second: float
    """Between 10 % and 90 % bound."""
    cpu_ms_per_pod: float
    """CPU since just before the pods were created, until the last event was written."""
    cpu_ms_per_pod_with_start_up: float
    start_up_cpu_seconds: float
    peak_mebibytes: float
    nodes_used: float
    events: float
    seconds_first_to_last: float
    """Between the first and the last binding."""
    watches: float
    """How often the watcher had to watch anew, and once; more than a few mean that the machine was too busy."""

    other_cores: float
    """Cores that were busy with what is no part of the benchmark: near 0 on a machine that is fit for it."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ours ÷ original, but for ``of_binding``: ours ÷ the client that only binds, in pods a second, writing each event
    before it binds the next pod, or events later.

    None where one of the two did not run.
    """

    pods_per_second: float | None = None
    cpu_per_pod: float | None = None
    cpu_per_pod_with_start_up: float | None = None
    peak_memory: float | None = None
    of_binding: float | None = None
    of_binding_events_later: float | None = None
    seconds_first_to_last: float | None = None


def rate(moments: Iterable[float]) -> float:
    """Bindings a second between 10 % and 90 % bound. Needs at least ten moments."""
    ordered = sorted(moments)
    first, last = len(ordered) // 10, len(ordered) * 9 // 10 - 1
    return (last - first) / (ordered[last] - ordered[first])


def median(runs: Sequence[Figures]) -> Figures:
    """Each figure's median."""
    return Figures(*(round(statistics.median(getattr(run, each.name) for run in runs), 3) for each in fields(Figures)))


def ratios(
    ours: Figures | None, original: Figures | None, binding: Figures | None, binding_later: Figures | None
) -> Ratios:
    if ours is None:
        return Ratios()
    of_binding, later = (
        round(ours.pods_per_second / other.pods_per_second, 3) if other else None for other in (binding, binding_later)
    )
    if original is None:
        return Ratios(of_binding=of_binding, of_binding_events_later=later)
    return Ratios(
        round(ours.pods_per_second / original.pods_per_second, 2),
        round(ours.cpu_ms_per_pod / original.cpu_ms_per_pod, 3),
        round(ours.cpu_ms_per_pod_with_start_up / original.cpu_ms_per_pod_with_start_up, 3),
        round(ours.peak_mebibytes / original.peak_mebibytes, 3),
        of_binding,
        later,
        round(ours.seconds_first_to_last / original.seconds_first_to_last, 3),
    )


def requirements_met(found: Ratios, required: Requirement) -> dict[str, bool]:
    """Requirement -> whether it is met, for those that exist and could be measured. CPU is that without start-up."""
    checks = (
        ("pods_per_second", found.pods_per_second, required.rate_at_least, 1),
        ("cpu_per_pod", found.cpu_per_pod, required.cpu_at_most, -1),
        ("peak_memory", found.peak_memory, required.memory_at_most, -1),
        ("of_binding", found.of_binding, required.of_binding_at_least, 1),
    )
    return {
        name: (value - bound) * sign >= 0
        for name, value, bound, sign in checks
        if value is not None and bound is not None
    }


def growth_exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The slope of log cost over log size: 1 when cost grows like size, 0 when it does not grow."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(cost) for cost in costs]).slope
