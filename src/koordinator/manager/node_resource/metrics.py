"""What the controller ``noderesource`` counts and measures, under the original's names where it has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_MEMORY
from koordinator.base.metrics import Metrics
from koordinator.manager.node_resource.abnormal_nodes import reason_label
from koordinator.manager.node_resource.explanations import Explanations
from koordinator.manager.slo_metrics import Outcomes
from koordinator.model.overcommit.abnormality import REASONS
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
        metrics.register(_Abnormal(explanations))

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
        sums = _Sums()
        for node, explanation in self._explanations:
            for amount in explanation.amounts:
                sums.add(amount)
                if not amount.is_reset:
                    unit = "byte" if amount.resource in _BYTES else "integer"
                    offered.add_metric((node, amount.resource, unit), _reported(amount))
        yield offered
        yield from sums.families()


class _Sums:
    """Over all nodes."""

    def __init__(self) -> None:
        self._addends: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._terms: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._nodes: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._oldest: dict[str, datetime] = {}

    def add(self, amount: ExplainedAmount) -> None:
        name = amount.resource
        self._nodes[name, amount.policy, amount.reset] += 1
        if amount.is_reset:
            return
        for addend in (*amount.addends, *amount.adjustments):
            self._addends[name, addend.name] += addend.amount
        for term, value in amount.terms.items():
            self._terms[name, term] += value
        if amount.metric_time is not None:
            self._oldest[name] = min(self._oldest.get(name, amount.metric_time), amount.metric_time)

    def families(self) -> Iterator[Metric]:
        what = "of batch and mid resources, summed up over all nodes; CPU in milli-CPU"
        addends = GaugeMetricFamily(
            "koord_manager_overcommit_addend", f"[ALPHA] the addends {what}", labels=("resource", "addend")
        )
        terms = GaugeMetricFamily(
            "koord_manager_overcommit_term", f"[ALPHA] what goes into the addends {what}", labels=("resource", "term")
        )
        nodes = GaugeMetricFamily(
            "koord_manager_overcommit_nodes",
            "[ALPHA] nodes by the policy that a resource is counted by, or by why it is not offered",
            labels=("resource", "policy", "reset"),
        )
        oldest = GaugeMetricFamily(
            "koord_manager_overcommit_oldest_report_timestamp_seconds",
            "[ALPHA] the time of the oldest report that a resource is counted from",
            labels=("resource",),
        )
        for family, values in ((addends, self._addends), (terms, self._terms), (nodes, self._nodes)):
            for labels, total in sorted(values.items()):
                family.add_metric(labels, total)
        for resource, moment in sorted(self._oldest.items()):
            oldest.add_metric((resource,), moment.timestamp())
        yield from (addends, terms, nodes, oldest)


class _Abnormal(Collector):
    """How many nodes are abnormal; each counts once, for the reason that its condition names."""

    def __init__(self, explanations: Explanations) -> None:
        self._explanations = explanations

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        nodes = GaugeMetricFamily(
            "koord_manager_abnormal_nodes",
            "[ALPHA] nodes that are not to be trusted with batch capacity, by reason",
            labels=("reason",),
        )
        found = Counter(dict.fromkeys(REASONS, 0))
        for _, explanation in self._explanations:
            if explanation.health is not None:
                found[reason_label(explanation.health.findings[0].code)] += 1
        for reason, count in found.items():
            nodes.add_metric((reason,), count)
        yield nodes


def _reported(amount: ExplainedAmount) -> float:
    value = amount.value if amount.published is None else amount.published
    return value / _MILLI if amount.resource == BATCH_CPU else value
