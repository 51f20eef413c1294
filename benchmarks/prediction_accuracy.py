"""How good koordlet's forecasts of peaks are, on made traces, beside the 95th percentile of the last day.

usage: python -m benchmarks.prediction_accuracy [--days 7] [--pods 8] [--seed 1]

Each trace is the usage of one pod, minute by minute. The models learn it as koordlet does; once an hour, from the
second day on, each method forecasts the peak, which is compared with the true peak of the hour or the day that follows.

under_rate   share of forecasts that the true peak exceeds
shortfall    mean of what was missing where it did, as a share of the true peak
over_ratio   mean of what was too much where it did not, as a share of the true peak: capacity that is not lent out
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koordinator.base.clock import ManualClock, SteadyTime
from koordinator.koordlet.observe.prediction.forecast import Amount
from koordinator.koordlet.observe.prediction.models import Models, Usage
from koordinator.koordlet.observe.prediction.options import HalfLives

Trace = NDArray[np.float64]
"""One value a minute: cores, or GiB."""

_HOUR: Final = 60
_DAY: Final = 24 * _HOUR
_MARGIN_PERCENT: Final = 10
_GIB: Final = float(1 << 30)
_START: Final = datetime(2026, 3, 1, tzinfo=UTC)
_HORIZONS: Final = {"hour": _HOUR, "day": _DAY}


def _noisy(trace: Trace, random: np.random.Generator, share: float) -> Trace:
    return np.maximum(trace * random.normal(1.0, share, trace.size), 0.001)


def _steady(minutes: Trace, random: np.random.Generator) -> Trace:
    return _noisy(np.full(minutes.size, random.uniform(0.5, 4.0)), random, 0.05)


def _daily(minutes: Trace, random: np.random.Generator) -> Trace:
    """Busy by day, nearly idle by night."""
    wave = 1.2 + np.sin(2 * np.pi * (minutes / _DAY + random.uniform()))
    return _noisy(wave * random.uniform(0.5, 2.0), random, 0.1)


def _bursty(minutes: Trace, random: np.random.Generator) -> Trace:
    """Some bursts a day, of some minutes each, to several times of what is usual."""
    trace = np.full(minutes.size, random.uniform(0.2, 1.0))
    for start in random.integers(0, minutes.size, size=int(minutes.size / _DAY * 6)):
        trace[start : start + int(random.integers(5, 30))] *= random.uniform(2.0, 4.0)
    return _noisy(trace, random, 0.1)


def _growing(minutes: Trace, random: np.random.Generator) -> Trace:
    """A leak: a tenth more of what it began with each day."""
    return _noisy(random.uniform(0.5, 2.0) * (1 + 0.1 * minutes / _DAY), random, 0.03)


def _stepping(minutes: Trace, random: np.random.Generator) -> Trace:
    """Twice as much from the middle on: a new release, or new users."""
    level = random.uniform(0.5, 2.0)
    return _noisy(np.where(minutes < minutes.size / 2, level, 2 * level), random, 0.05)


_TRACES: Final[Mapping[str, Callable[[Trace, np.random.Generator], Trace]]] = {
    "steady": _steady,
    "daily": _daily,
    "bursty": _bursty,
    "growing": _growing,
    "stepping": _stepping,
}


class Forecasts(NamedTuple):
    """Of one trace, one value an hour from the second day on."""

    koordlet_cpu: Trace
    koordlet_memory: Trace
    percentile: Trace
    """The 95th percentile of the last day, with the same margin."""
    bare_percentile: Trace
    """Without it."""


def _forecasts(traces: Mapping[str, Trace], minutes: int) -> dict[str, Forecasts]:
    models = Models(HalfLives(), SteadyTime(ManualClock()))
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in traces}
    for minute in range(minutes):
        usages = {name: Usage(float(trace[minute]), float(trace[minute]) * _GIB) for name, trace in traces.items()}
        models.train(usages, _START + timedelta(minutes=minute), 0.0)
        if minute < _DAY or minute % _HOUR:
            continue
        for name, trace in traces.items():
            peak = models.peak(name)
            assert peak is not None
            amount = Amount.of(peak, _MARGIN_PERCENT)
            bare = float(np.percentile(trace[minute - _DAY : minute + 1], 95))
            found[name].append((amount.cpu / 1e9, amount.memory / 1e9 / _GIB, bare * (1 + _MARGIN_PERCENT / 100), bare))
    return {name: Forecasts(*map(np.array, zip(*rows, strict=True))) for name, rows in found.items()}


def _true_peaks(trace: Trace, minutes: int, horizon: int) -> Trace:
    starts = [minute for minute in range(_DAY, minutes) if minute % _HOUR == 0]
    return np.array([trace[start + 1 : start + 1 + horizon].max() for start in starts])


def _score(forecasts: Trace, peaks: Trace) -> dict[str, float]:
    is_under = forecasts < peaks
    error = np.abs(forecasts - peaks) / peaks
    return {
        "under_rate": round(float(is_under.mean()), 3),
        "shortfall": round(float(error[is_under].mean()) if is_under.any() else 0.0, 3),
        "over_ratio": round(float(error[~is_under].mean()) if not is_under.all() else 0.0, 3),
    }


def _compare(kind: str, days: int, pods: int, random: np.random.Generator) -> dict[str, Any]:
    minutes = days * _DAY
    # One more day, so that the last forecast has a whole day to be compared with.
    clock = np.arange(minutes + _DAY + 1, dtype=np.float64)
    traces = {f"{kind}-{number}": _TRACES[kind](clock, random) for number in range(pods)}
    forecasts = _forecasts(traces, minutes)
    scores: dict[str, Any] = {}
    for horizon, length in _HORIZONS.items():
        peaks = np.concatenate([_true_peaks(trace, minutes, length) for trace in traces.values()])
        scores[horizon] = {
            method: _score(np.concatenate([getattr(forecasts[name], method) for name in traces]), peaks)
            for method in Forecasts._fields
        }
    return scores


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=7, help="how long each trace is; the first day is learned only")
    parser.add_argument("--pods", type=int, default=8, help="traces of each kind")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.days < 2 or given.pods < 1:
        parser.error("--days must be at least 2 and --pods at least 1")
    random = np.random.default_rng(given.seed)
    scores = {kind: _compare(kind, given.days, given.pods, random) for kind in _TRACES}
    print(json.dumps({"benchmark": "prediction_accuracy", **vars(given), "scores": scores}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
