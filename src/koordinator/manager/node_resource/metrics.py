"""The metrics of the controller ``noderesource``, under the original's names where it has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordinator.api.resource_names import BATCH_CPU, EXTENDED_MEMORIES
from koordinator.base.metrics import Metrics
from koordinator.manager.controllers import Outcomes
from koordinator.manager.node_resource.explanations import Explanations, NodeExplanation
from koordinator.model.overcommit.abnormality import REASONS
from koordinator.model.overcommit.amounts import ExplainedAmount

OTHER: Final = "Other"
"""The label value for a condition reason that another version of this program wrote."""
_BYTES: Final = frozenset(EXTENDED_MEMORIES)
_MILLI: Final = 1000
_STAGE: Final = "ResourceCalculate"


class NodeResourceMetrics:
    """Metrics over all nodes."""

    def __init__(self, metrics: Metrics, explanations: Explanations, plugins: Iterable[str]) -> None:
        self.reconciled = Outcomes(metrics, "node_resource_reconcile_count", "writes of node resources, by the write")
        runs = metrics.gauge(
            "slo_controller_node_resource_run_plugin_status",
            "how often a plugin ran, and how often something was wrong",
            ("plugin", "status", "reason"),
        )
        # To find a series by its labels, or to lock it, takes longer than to run most plugins.
        self._plans = 0
        self._failures = dict.fromkeys(plugins, 0)
        for plugin in plugins:
            runs.labels(plugin, "failed", _STAGE).set_function(partial(self._failures.__getitem__, plugin))
            runs.labels(plugin, "succeeded", _STAGE).set_function(partial(self._successes, plugin))
        self._transitions = metrics.counter(
            "koord_manager_abnormal_node_transitions_total", "Nodes that became abnormal or normal", ("reason", "to")
        )
        self._steps = metrics.counter(
            "koord_manager_slo_adaptation_steps_total", "Steps by which nodes were adapted", ("direction",)
        )
        metrics.register(_Amounts(explanations))
        what = "[ALPHA] nodes whose readings are not trusted, by reason"
        abnormal = "koord_manager_abnormal_nodes", what, "reason", _reason_label
        metrics.register(_Nodes(*abnormal, explanations, always=REASONS))
        what = "[ALPHA] nodes whose co-location is taken back, by how many steps"
        metrics.register(_Nodes("koord_manager_adapted_nodes", what, "level", _level_label, explanations))

    def _successes(self, plugin: str) -> int:
        return self._plans - self._failures[plugin]

    def ran(self, failed: Iterable[str]) -> None:
        """Count a run of each plugin, as failed for those in ``failed``."""
        self._plans += 1
        for plugin in self._failures.keys() & failed:
            self._failures[plugin] += 1

    def stepped(self, *, up: bool) -> None:
        """Count a step of one node, towards the floors or back."""
        self._steps.labels("tighten" if up else "relax").inc()

    def condition_changed(self, before: str, after: str) -> None:
        """Count a transition of one node. ``before`` and ``after`` are the condition's reasons, empty for a normal
        node."""
        if before:
            self._transitions.labels(_known(before), "normal").inc()
        if after:
            self._transitions.labels(_known(after), "abnormal").inc()


class _Amounts(Collector):
    """Mid, batch and free capacity over all nodes, with the terms they are computed from; collected at each scrape."""

    def __init__(self, explanations: Explanations) -> None:
        self._explanations = explanations

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        capacity = GaugeMetricFamily(
            "slo_controller_node_extended_resource_allocatable_internal",
            "[ALPHA] allocatable batch, mid and free resources of a node; batch CPU in cores, "
            "mid and free CPU in milli-CPU",
            labels=("node", "resource", "unit"),
        )
        sums = _Sums()
        for node, explanation in self._explanations:
            for amount in explanation.amounts:
                sums.add(amount)
                if not amount.is_reset:
                    unit = "byte" if amount.resource in _BYTES else "integer"
                    capacity.add_metric((node, amount.resource, unit), _reported(amount))
        yield capacity
        yield from sums.families()


class _Sums:
    """Totals over all nodes."""

    def __init__(self) -> None:
        self._terms: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._inputs: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._nodes: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._oldest: dict[str, datetime] = {}

    def add(self, amount: ExplainedAmount) -> None:
        name = amount.resource
        self._nodes[name, amount.policy, amount.reset] += 1
        if amount.is_reset:
            return
        for term in (*amount.terms, *amount.adjustments):
            self._terms[name, term.name] += term.amount
        for input_name, value in amount.inputs.items():
            self._inputs[name, input_name] += value
        if amount.metric_time is not None:
            self._oldest[name] = min(self._oldest.get(name, amount.metric_time), amount.metric_time)

    def families(self) -> Iterator[Metric]:
        what = "of batch, mid and free resources, summed up over all nodes; CPU in milli-CPU"
        terms = GaugeMetricFamily(
            "koord_manager_overcommit_term", f"[ALPHA] terms of the sums {what}", labels=("resource", "term")
        )
        inputs = GaugeMetricFamily(
            "koord_manager_overcommit_input", f"[ALPHA] inputs of the terms {what}", labels=("resource", "input")
        )
        nodes = GaugeMetricFamily(
            "koord_manager_overcommit_nodes",
            "[ALPHA] nodes by the policy that a resource is computed with, or by why the node has none of it",
            labels=("resource", "policy", "reset"),
        )
        oldest = GaugeMetricFamily(
            "koord_manager_overcommit_oldest_report_timestamp_seconds",
            "[ALPHA] the time of the oldest report that a resource is computed from",
            labels=("resource",),
        )
        for family, values in ((terms, self._terms), (inputs, self._inputs), (nodes, self._nodes)):
            for labels, total in sorted(values.items()):
                family.add_metric(labels, total)
        for resource, moment in sorted(self._oldest.items()):
            oldest.add_metric((resource,), moment.timestamp())
        yield from (terms, inputs, nodes, oldest)


class _Nodes(Collector):
    """The number of nodes by what is found of them; those without a label are not counted. The labels in ``always``
    are there with 0, too."""

    def __init__(
        self,
        name: str,
        what: str,
        label: str,
        label_of: Callable[[NodeExplanation], str],
        explanations: Explanations,
        always: Iterable[str] = (),
    ) -> None:
        self._name, self._what, self._label, self._label_of = name, what, label, label_of
        self._explanations, self._always = explanations, tuple(always)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        nodes = GaugeMetricFamily(self._name, self._what, labels=(self._label,))
        found = Counter(dict.fromkeys(self._always, 0))
        found.update(filter(None, [self._label_of(explanation) for _, explanation in self._explanations]))
        for label, count in sorted(found.items()):
            nodes.add_metric((label,), count)
        yield nodes


def _reason_label(explanation: NodeExplanation) -> str:
    return _known(explanation.health.findings[0].code) if explanation.health is not None else ""


def _level_label(explanation: NodeExplanation) -> str:
    state = explanation.adaptation
    return str(state.level) if state is not None and state.level else ""


def _known(code: str) -> str:
    return code if code in REASONS else OTHER


def _reported(amount: ExplainedAmount) -> float:
    value = amount.value if amount.published is None else amount.published
    return value / _MILLI if amount.resource == BATCH_CPU else value
