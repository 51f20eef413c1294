"""What the controller ``noderesource`` counts and measures, under the original's names where it has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_MEMORY
from koordinator.base.metrics import Metrics
from koordinator.manager.node_resource.explanations import Explanations
from koordinator.manager.slo_metrics import Outcomes
from koordinator.model.overcommit.explained_sum import ExplainedAmount

_BYTES: Final = frozenset({BATCH_MEMORY, MID_MEMORY})
_MILLI: Final = 1000


class NodeResourceMetrics:
    """Of all nodes."""

    def __init__(self, metrics: Metrics, explanations: Explanations) -> None:
        self.reconciled = Outcomes(metrics, "node_resource_reconcile_count", "writes of node resources, by the write")
        self._plugins = metrics.gauge(
            "slo_controller_node_resource_run_plugin_status",
            "how often a plugin ran, and how often something was wrong",
            ("plugin", "status", "reason"),
        )
        metrics.register(_Amounts(explanations))

    def ran(self, plugins: Iterable[str], failed: Iterable[str]) -> None:
        """Each of ``plugins`` was run, and something was wrong with those of ``failed``."""
        wrong = set(failed)
        for plugin in plugins:
            self._plugins.labels(plugin, "failed" if plugin in wrong else "succeeded", "ResourceCalculate").inc()


class _Amounts(Collector):
    """What nodes offer, and the addends that it is made of, summed up over all nodes; read when scraped."""

    def __init__(self, explanations: Explanations) -> None:
        self._explanations = explanations

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        offered = GaugeMetricFamily(
            "slo_controller_node_extended_resource_allocatable_internal",
            "[ALPHA] what a node offers of a resource; batch CPU in cores, mid CPU in milli-CPU",
            labels=("node", "resource", "unit"),
        )
        addends = GaugeMetricFamily(
            "koord_manager_overcommit_addend",
            "[ALPHA] what batch and mid resources are made of, summed up over all nodes; CPU in milli-CPU",
            labels=("resource", "addend"),
        )
        sums: defaultdict[tuple[str, str], int] = defaultdict(int)
        for node, explanation in self._explanations:
            for amount in explanation.amounts:
                if amount.is_reset or amount.zone:
                    continue
                unit = "byte" if amount.resource in _BYTES else "integer"
                offered.add_metric((node, amount.resource, unit), _reported(amount))
                for addend in (*amount.addends, *amount.adjustments):
                    sums[amount.resource, addend.name] += addend.amount
        for key, total in sorted(sums.items()):
            addends.add_metric(key, total)
        yield offered
        yield addends


def _reported(amount: ExplainedAmount) -> float:
    value = amount.value if amount.published is None else amount.published
    return value / _MILLI if amount.resource == BATCH_CPU else value
