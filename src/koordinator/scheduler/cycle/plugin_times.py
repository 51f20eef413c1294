"""Measures the run times of plugins and extension points.

Filter and Score, in which most decisions evaluate one row, are measured in one decision of ten: measuring costs as much
as they do. The other points are measured whenever they have something to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

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
        self._stopwatches: dict[tuple[str, int], _Stopwatch] = {}
        """By point and identity of the plugin."""
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
        filters, scores = self._timed("Filter", plan.filters), self._timed("Score", plan.scores)
        try:
            evaluation.refresh()
        finally:
            for entry, stopwatch in (*filters, *scores):
                entry.plugin = stopwatch.plugin
                stopwatch.put_back()
            self._notify("Filter", [stopwatch for _, stopwatch in filters if stopwatch.calls])
            self._notify("Score", [stopwatch for _, stopwatch in scores if stopwatch.calls])

    def _notify(self, point: str, called: list[_Stopwatch]) -> None:
        for stopwatch in called:
            self._metrics.plugin_took(stopwatch.plugin.name, point, stopwatch.seconds, stopwatch.status)
        if called:
            failed = any(stopwatch.status == "Error" for stopwatch in called)
            notify = self._metrics.point_times(point, self._profile, "Error" if failed else "Success")
            notify(sum(stopwatch.seconds for stopwatch in called))

    def _timed(
        self, point: str, entries: list[CachedFilterResults] | list[CachedScores]
    ) -> list[tuple[CachedFilterResults | CachedScores, _Stopwatch]]:
        timed: list[tuple[CachedFilterResults | CachedScores, _Stopwatch]] = []
        for entry in entries:
            key = point, id(entry.plugin)
            stopwatch = self._stopwatches.get(key)
            if stopwatch is None:
                stopwatch = self._stopwatches[key] = _Stopwatch(entry.plugin, self._monotonic)
            stopwatch.start()
            entry.plugin = cast(Any, stopwatch)
            if entry.in_batch is not None:
                stopwatch.measure_batch(entry.in_batch)
            timed.append((entry, stopwatch))
        return timed


class _Stopwatch:
    """Replaces a plugin and adds up the time that its methods take."""

    def __init__(self, plugin: Any, monotonic: Callable[[], float]) -> None:
        self.plugin = plugin
        self._monotonic = monotonic
        self.start()

    def start(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self.status = "Success"
        self._in_batch: tuple[BatchHandle, Callable[..., Any]] | None = None

    def measure_batch(self, in_batch: BatchHandle) -> None:
        """Batch evaluation of the plugin for this class of pods and others counts for this decision, too."""
        self._in_batch = in_batch, in_batch.evaluate
        in_batch.evaluate = self._measuring(in_batch.evaluate)

    def put_back(self) -> None:
        if self._in_batch is not None:
            in_batch, evaluate = self._in_batch
            in_batch.evaluate = evaluate

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
