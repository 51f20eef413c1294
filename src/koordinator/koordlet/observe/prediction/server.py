"""The prediction server: models that learn every minute, are kept over restarts, and give forecasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from koordinator.api.priority import PriorityClass
from koordinator.base.clock import SteadyTime
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import Loop
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.koordlet.observe.prediction.checkpoints import CheckpointFolder, CheckpointFolderError
from koordinator.koordlet.observe.prediction.forecast import MIN_PREDICTOR, Amount, Forecast, forecast_prod
from koordinator.koordlet.observe.prediction.models import NODE_MODELS, Models, observe
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.model.decaying_histogram import CheckpointError

logger = logging.getLogger(__name__)

_EVERY: Final = 60.0
"""Seconds between rounds of writing and dropping models."""
_DEADLINE: Final = 60.0
_TICK: Final = 1.0
"""Seconds between two checks whether there is something to learn."""


class PredictionServer:
    """Learns from the metric cache. Nothing is learned before the kubelet has listed the pods: until then it is unknown
    which of the kept models are of pods that still run."""

    def __init__(self, context: AgentContext) -> None:
        self._options = options = context.options.prediction
        self._memory_interval = context.table.memory_interval
        self._cache = context.cache
        self._states = context.states
        self._clock = clock = context.given.clock
        self._models = Models(options.half_lives, SteadyTime(clock))
        self._path = context.options.folders.forecasts
        self._folder = CheckpointFolder(self._path)
        self._has_restored = False
        self._trained_at = float("-inf")
        """When the models were due last."""
        self._saved_at: dict[str, float] = {}
        """By model, in seconds of the monotonic clock."""
        self._refused = SaidOnce(logger, over=lambda _: "models are written again")
        self._latest = Forecast()
        self._export(context.metrics)

    def loops(self) -> Sequence[Loop]:
        return (
            Loop("prediction training", self.train_when_due, _TICK, _DEADLINE),
            Loop("prediction checkpoints", self.keep, _EVERY, _DEADLINE),
        )

    async def train_when_due(self) -> None:
        """Learn at once when the pods are known, so that a restart costs no forecast, and then once an interval."""
        now = self._clock.monotonic()
        if self._states.has_synced_pods and now - self._trained_at >= self._options.training_interval:
            self._trained_at = now
            await self.train()

    async def train(self) -> None:
        if self._states.node is None or not self._states.has_synced_pods:
            return
        if not self._has_restored:
            self._restore()
            self._has_restored = True
        now = self._clock.now()
        end = round(now.timestamp() * 1000)
        # However often models learn, there is a reading of memory to learn from.
        start = end - round(max(self._options.training_interval, 2 * self._memory_interval) * 1000)
        usages = observe(self._cache, self._states.pods, start, end)
        self._models.train(usages, now, self._clock.monotonic())

    async def keep(self) -> None:
        """Drop models that have expired, and write those whose turn it is. What the disk refuses is said once: the
        models in memory are those that count, and a restart finds the files of before."""
        if not self._has_restored:
            return
        now = self._clock.monotonic()
        problems: list[CheckpointFolderError] = []
        for name in self._models.drop_expired(now, self._options.expiration):
            logger.debug("the model %s has expired", name)
            self._saved_at.pop(name, None)
            try:
                self._folder.remove(name)
            except CheckpointFolderError as error:
                problems.append(error)
        for name in (due := self._due(now)):
            # One that cannot be written has had its turn, too, or it would keep the others from theirs.
            self._saved_at[name] = now
            try:
                self._folder.save(name, self._models.checkpoint(name, self._clock.now()))
            except CheckpointFolderError as error:
                problems.append(error)
            # Other loops have their turn between two files.
            await asyncio.sleep(0)
        if problems or due:
            with self._refused.round():
                if problems:
                    self._refused.say(f"models outlive no restart: {problems[0]}", about=self._path)

    def forecast_prod(self, pods: Sequence[NodePod]) -> Forecast:
        """For the prod pods among these; why there is none is said when it changes."""
        node = self._states.node
        if node is None:
            forecast = Forecast(problem="the Node has not been seen yet")
        else:
            forecast = forecast_prod(pods, node, self._models.peak, self._options, self._clock.now())
        if forecast.problem != self._latest.problem:
            logger.info("forecast: %s", forecast.problem or "there is one now")
        self._latest = forecast
        return forecast

    def _export(self, metrics: AgentMetrics) -> None:
        labels = ("predictor", "resource", "unit")
        metrics.latest(
            "node_predicted_resource_reclaimable",
            "the node resource that prod pods have requested and are predicted not to use",
            labels,
            lambda: _rows(self._latest.reclaimable),
        )
        metrics.latest(
            "node_predicted_resource_peak", "the predicted peak of prod pods", labels, lambda: _rows(self._latest.peak)
        )
        metrics.latest(
            "node_priority_resource_reclaimable",
            "the node resource that pods of the priority have requested and are predicted not to use",
            ("priority", "resource", "unit"),
            lambda: _rows({PriorityClass.PROD.value: self._latest.reclaimable.get(MIN_PREDICTOR, Amount(0, 0))}),
            external=True,
        )
        metrics.latest(
            "node_resource_priority_reclaimable_status",
            "0 while there is a forecast, 1 while there is none",
            ("priority",),
            lambda: [((PriorityClass.PROD.value,), 0 if self._latest.reclaimable else 1)],
            external=True,
        )

    def _due(self, now: float) -> list[str]:
        """The models whose files are the oldest, among those whose files are old enough; new ones first."""
        saved_at = self._saved_at
        due = [
            name
            for name in self._models.names
            if name not in saved_at or now - saved_at[name] >= self._options.checkpoint_interval
        ]
        due.sort(key=lambda name: saved_at.get(name, float("-inf")))
        return due[: self._options.checkpoints_per_step]

    def _restore(self) -> None:
        known = NODE_MODELS | {pod.uid for pod in self._states.pods}
        restored = 0
        try:
            for name, saved in self._folder.load().items():
                if name not in known:
                    self._folder.remove(name)
                    continue
                try:
                    self._models.restore(name, saved, self._clock.now(), self._clock.monotonic())
                    restored += 1
                except CheckpointError as error:
                    logger.warning("the model %s begins anew: %s", name, error)
        except KoordinatorError as error:
            logger.warning("models begin anew, as far as they could not be read: %s", error)
        logger.info("%d models were restored from %s", restored, self._path)


def _rows(amounts: Mapping[str, Amount]) -> Rows:
    for whose, amount in amounts.items():
        yield (whose, "cpu", "core"), amount.cpu / 1e9
        yield (whose, "memory", "byte"), amount.memory / 1e9
