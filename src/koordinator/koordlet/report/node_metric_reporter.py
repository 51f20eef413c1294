"""Reporting the NodeMetric: when it is due, out of what was measured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.quantity import Quantity
from koordinator.base.loops import Loop
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.koordlet.observe.observation import Observation
from koordinator.koordlet.observe.prediction.forecast import Forecast
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.report.node_metric import NodeMetricInput, as_merge_patch, measured_pods, node_metric_status
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType

logger = logging.getLogger(__name__)


class NodeMetricReporter:
    """Writes the status of the NodeMetric that koord-manager has made; where there is none, it waits for one."""

    def __init__(
        self,
        context: AgentContext,
        observation: Observation,
        forecast: Callable[[Sequence[NodePod]], Forecast],
        extensions: Sequence[Callable[[], Mapping[str, Mapping[str, Any]]]],
    ) -> None:
        """``extensions`` say what else there is to report of pods, by UID and key."""
        self._client = context.given.client
        self._states = context.states
        self._cache = context.cache
        self._clock = clock = context.given.clock
        self._observation = observation
        self._forecast = forecast
        self._extensions = extensions
        self._latest: Mapping[str, Any] = {}
        """The part nodeMetric of the last status that was made."""
        self._said = SaidOnce(logger)
        self._last = clock.monotonic()
        """When the last report that succeeded was due; the first is due an interval after the start."""

        if context.options.features.enabled(features.NODE_METRIC_PROM_METRICS):
            self._export(context.metrics)

    @property
    def loop(self) -> Loop:
        return Loop("node metric", self._report_when_due, 1.0, 60.0)

    async def _report_when_due(self) -> None:
        """Report if the interval of the NodeMetric's policy has passed since the last report that succeeded.

        Errors are those of the API server; who calls this tries again soon.
        """
        now = self._clock.monotonic()
        if now - self._last < self._states.collect_policy.report_seconds:
            return
        await self.report()
        self._last = now

    def _export(self, metrics: AgentMetrics) -> None:
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
        metric = self._states.node_metric
        with self._said.round():
            if metric is None:
                self._said.say("nothing is reported: this node has no NodeMetric (koord-manager makes it)")
                return
        given, now = self._input(), self._clock.now()
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

    def _input(self) -> NodeMetricInput:
        """What there is at this moment, but for the forecast."""
        slo, observation = self._states.node_slo_spec, self._observation
        return NodeMetricInput(
            policy=self._states.collect_policy,
            pods=self._states.pods,
            host_applications=slo.host_applications if slo else (),
            numa_nodes=[node.number for node in observation.info.numa_memory or ()],
            gpus=observation.gpus,
            has_cold_pages=observation.has_cold_pages,
            extensions=[said() for said in self._extensions],
        )


def _usage_rows(usage: Mapping[str, Any]) -> Rows:
    """CPU and memory of a usage as a NodeMetric has it."""
    resources = usage.get("resources", {})
    if "cpu" in resources:
        yield ("cpu", "core"), Quantity.parse(resources["cpu"]).milli / 1000
    if "memory" in resources:
        yield ("memory", "byte"), Quantity.parse(resources["memory"]).value
