"""Reporting the NodeMetric: when it is due, out of what was measured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.quantity import Quantity
from koordinator.base.clock import Clock
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache
from koordinator.koordlet.observe.prediction.forecast import Forecast
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.node_metric import (
    NodeMetricInput,
    as_merge_patch,
    measured_pods,
    node_metric_status,
)
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

logger = logging.getLogger(__name__)


class NodeMetricReporter:
    """Writes the status of the NodeMetric that koord-manager has made; where there is none, it waits for one."""

    def __init__(
        self,
        client: Client,
        states: StatesInformer,
        cache: RingMetricCache,
        clock: Clock,
        measured: Callable[[], NodeMetricInput],
        forecast: Callable[[Sequence[NodePod]], Forecast],
    ) -> None:
        """``measured`` is what a report is made of at the moment of the call, but for the forecast for its pods."""
        self._client = client
        self._states = states
        self._cache = cache
        self._clock = clock
        self._measured = measured
        self._forecast = forecast
        self._latest: Mapping[str, Any] = {}
        """The part nodeMetric of the last status that was made."""
        self._said = SaidOnce(logger)
        self._last = clock.monotonic()
        """When the last report that succeeded was due; the first is due an interval after the start."""

    async def report_when_due(self) -> None:
        """Report if the interval of the NodeMetric's policy has passed since the last report that succeeded.

        Errors are those of the API server; who calls this tries again soon.
        """
        now = self._clock.monotonic()
        if now - self._last < self._states.collect_policy.report_seconds:
            return
        await self.report()
        self._last = now

    def export(self, metrics: AgentMetrics) -> None:
        """Show what the last report said."""
        for name in ("node", "system"):
            part = f"{name}Usage"
            help_text, labels = f"{name} usage reported in the NodeMetric", ("resource", "unit")
            metrics.latest(f"node_metric_{name}_usage", f"the {help_text}", labels, partial(self._rows, part))
            metrics.latest(
                f"node_metric_numa_{name}_usage",
                f"the per-NUMA {help_text}",
                ("numa_node_id", *labels),
                partial(self._numa_rows, part),
            )

    def _rows(self, part: str) -> Rows:
        return _usage_rows(self._latest.get(part, {}))

    def _numa_rows(self, part: str) -> Rows:
        for usage in self._latest.get("numaUsages", ()):
            for labels, value in _usage_rows(usage[part]):
                yield (str(usage["numaNodeID"]), *labels), value

    async def report(self) -> None:
        """Write the status as of now."""
        metric = self._states.node_metric
        with self._said.round():
            if metric is None:
                self._said.say("nothing is reported: this node has no NodeMetric (koord-manager makes it)")
                return
        given, now = self._measured(), self._clock.now()
        given = replace(given, forecast=self._forecast(measured_pods(self._cache, given, now)))
        status = node_metric_status(self._cache, given, now)
        self._latest = status["nodeMetric"]
        try:
            await self._client.patch(
                NODE_METRICS, metric.metadata.name, as_merge_patch(status), PatchType.MERGE, subresource="status"
            )
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            logger.info("the NodeMetric was deleted: nothing to report to")


def _usage_rows(usage: Mapping[str, Any]) -> Rows:
    """CPU and memory of a usage as a NodeMetric has it."""
    resources = usage.get("resources", {})
    if "cpu" in resources:
        yield ("cpu", "core"), Quantity.parse(resources["cpu"]).milli / 1000
    if "memory" in resources:
        yield ("memory", "byte"), Quantity.parse(resources["memory"]).value
