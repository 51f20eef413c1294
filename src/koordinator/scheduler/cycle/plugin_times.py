"""Measures the run times of plugins and extension points.

Filter and Score, in which most decisions evaluate one row, are measured in one decision of ten: measuring costs as much
as they do. The other points are measured whenever they have something to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from koordinator.scheduler.engine.cached_results import BatchHandle, CachedFilterResults, CachedScores
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.metrics import SchedulerMetrics

_ONE_IN: Final = 10


class PluginTimes:
    """``refresh`` replaces Evaluation.refresh in one profile's engine; the object is its PointTimes."""

    def __init__(self, profile: str, metrics: SchedulerMetrics, monotonic: Callable[[], float]) -> None:
        self._profile = profile
        self._metrics = metrics
        self._monotonic = monotonic
        self.begin = monotonic
        self._points: dict[tuple[str, str], Callable[[float], None]] = {}
        """By point and status: looking labels up costs more than counting."""
        self._filters: dict[Any, _Stopwatch] = {}
        """By plugin."""
        self._scores: dict[Any, _Stopwatch] = {}
        self._decisions = 0

    def end(self, point: str, begun: float, status: str = "Success") -> None:
        """See PointTimes."""
        seconds = self._monotonic() - begun
        observe = self._points.get((point, status))
        if observe is None:
            observe = self._points[point, status] = self._metrics.point_times(point, self._profile, status)
        observe(seconds)

    def refresh(self, evaluation: Evaluation) -> None:
        """Refresh the evaluation, and measure that in one of ten calls."""
        self._decisions += 1
        if self._decisions % _ONE_IN:
            evaluation.refresh()
        else:
            self._measured(evaluation)

    def _measured(self, evaluation: Evaluation) -> None:
        plan = evaluation.plan
        filters, scores = self._timed(self._filters, plan.filters), self._timed(self._scores, plan.scores)
        try:
            evaluation.refresh()
        finally:
            for entry, stopwatch in (*filters, *scores):
                entry.plugin = stopwatch.plugin
                if stopwatch.in_batch is not None:
                    stopwatch.put_back()
            self._notify("Filter", [stopwatch for _, stopwatch in filters if stopwatch.calls])
            self._notify("Score", [stopwatch for _, stopwatch in scores if stopwatch.calls])

    def _notify(self, point: str, called: list[_Stopwatch]) -> None:
        seconds, status = 0.0, "Success"
        for stopwatch in called:
            self._metrics.plugin_took(stopwatch.plugin.name, point, stopwatch.seconds, stopwatch.status)
            seconds += stopwatch.seconds
            if stopwatch.status == "Error":
                status = "Error"
            stopwatch.reset()
        if called:
            self._metrics.point_times(point, self._profile, status)(seconds)

    def _timed(
        self, stopwatches: dict[Any, _Stopwatch], entries: list[CachedFilterResults] | list[CachedScores]
    ) -> list[tuple[CachedFilterResults | CachedScores, _Stopwatch]]:
        for entry in entries:
            if entry.plugin not in stopwatches:
                stopwatches[entry.plugin] = _Stopwatch(entry.plugin, self._monotonic)
        timed = [(entry, stopwatches[entry.plugin]) for entry in entries]
        for entry, stopwatch in timed:
            replacement: Any = stopwatch
            entry.plugin = replacement
            if entry.in_batch is not None:
                stopwatch.measure_batch(entry.in_batch)
        return timed


class _Stopwatch:
    """Replaces a plugin and adds up the time that its methods take."""

    def __init__(self, plugin: Any, monotonic: Callable[[], float]) -> None:
        self.plugin = plugin
        self._monotonic = monotonic
        self.in_batch: tuple[BatchHandle, Callable[..., Any]] | None = None
        self.reset()

    def reset(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self.status = "Success"

    def measure_batch(self, in_batch: BatchHandle) -> None:
        """Batch evaluation of the plugin for this class of pods and others counts for this decision, too."""
        self.in_batch = in_batch, in_batch.evaluate
        in_batch.evaluate = self._measuring(in_batch.evaluate)

    def put_back(self) -> None:
        if self.in_batch is not None:
            self.in_batch[0].evaluate = self.in_batch[1]
            self.in_batch = None

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.plugin, name)
        if not callable(member):
            return member
        measured = self.__dict__[name] = self._measuring(member)
        return measured

    def _measuring(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = self._monotonic()
            try:
                return method(*arguments)
            except Exception:
                self.status = "Error"
                raise
            finally:
                self.seconds += self._monotonic() - started
                self.calls += 1

        return call
