"""How many replicas each metric of an autoscaler asks for, and what its status shows of the metric; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from koordinator.api.document import Document
from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.autoscaler.replica_count import (
    DEFAULT_TOLERANCE,
    Proposal,
    Tolerance,
    Usage,
    for_average,
    for_utilization,
)
from koordinator.cluster.controllers.autoscaler.types import (
    Autoscaler,
    MetricSpec,
    OtherMetricSource,
    PodMetrics,
    ResourceMetricSource,
    ScalingRules,
)
from koordinator.cluster.controllers.autoscaler.usage import MetricError, requests_of, samples_of

NOTHING_MEASURED: Final[Document] = {"type": ""}
"""What the status shows of a metric that has no value."""
_NO_CUSTOM: Final = (
    "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
)
_NO_EXTERNAL: Final = (
    "unable to fetch metrics from external metrics API: the server could not find the requested resource "
    "(get {name}.external.metrics.k8s.io)"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the metrics are worked out from. ``metrics`` is the reason where none could be had."""

    pods: Sequence[Pod]
    metrics: Sequence[PodMetrics] | str
    replicas: int
    now: datetime


@dataclass(frozen=True, slots=True)
class MetricResult:
    """Of one metric: the proposal with the name of the metric, or why there is none."""

    status: Document
    replicas: int = 0
    name: str = ""
    failure: str = ""
    """Why, as the condition says it; empty if there is a proposal."""
    reason: str = ""
    wrapped: str = ""
    """The failure, as an event about all metrics begins it."""


def propose(autoscaler: Autoscaler, metric: MetricSpec, measured: Measured) -> MetricResult:
    """Never raises: a metric that gives no number says why."""
    if metric.type == "Resource" and metric.resource is not None:
        return _of_resource(autoscaler, metric.resource, measured)
    if metric.type == "ContainerResource" and metric.container_resource is not None:
        return _of_resource(autoscaler, metric.container_resource, measured)
    return _unavailable(metric, autoscaler.metadata.namespace)


def _of_resource(autoscaler: Autoscaler, source: ResourceMetricSource, measured: Measured) -> MetricResult:
    target = source.target
    in_container = "container " if source.container else ""
    what, name = "utilization", f"{source.name} {in_container}resource utilization (percentage of request)"
    if target.average_value is not None:
        what, name = "usage", f"{source.name} {in_container}resource"
    try:
        proposal = _count(autoscaler, source, measured)
    except MetricError as error:
        failure = f"failed to get {source.name} {what}: {error}"
        kind, of = ("ContainerResource", source.container) if source.container else ("Resource", source.name)
        wrapped = f"failed to get {of} {'container' if source.container else 'resource'} metric value: {failure}"
        return MetricResult(NOTHING_MEASURED, failure=failure, reason=f"FailedGet{kind}Metric", wrapped=wrapped)
    current: Document = {"averageValue": str(proposal.average)}
    if proposal.utilization is not None:
        current["averageUtilization"] = proposal.utilization
    shown: Document = {"name": source.name, "current": current}
    if source.container:
        status = {"type": "ContainerResource", "containerResource": {**shown, "container": source.container}}
    else:
        status = {"type": "Resource", "resource": shown}
    return MetricResult(status, proposal.replicas, name)


def _count(autoscaler: Autoscaler, source: ResourceMetricSource, measured: Measured) -> Proposal:
    if isinstance(measured.metrics, str):
        raise MetricError(f"unable to get metrics for resource {source.name}: {measured.metrics}")
    samples = samples_of(measured.metrics, source.name, source.container)
    tolerance = _tolerance(autoscaler)
    usage = Usage(source.name, measured.pods, samples, measured.replicas, tolerance, measured.now)
    target = source.target
    if target.average_value is not None and target.average_value.milli > 0:
        return for_average(usage, target.average_value.milli)
    if target.average_utilization:
        return for_utilization(
            usage, requests_of(measured.pods, source.name, source.container), target.average_utilization
        )
    raise MetricError(
        "invalid resource metric source: neither an average utilization target nor an average value (usage) target "
        "was set"
    )


def _tolerance(autoscaler: Autoscaler) -> Tolerance:
    behavior = autoscaler.spec.behavior
    if behavior is None:
        return Tolerance()
    return Tolerance(_share(behavior.scale_up), _share(behavior.scale_down))


def _share(rules: ScalingRules) -> float:
    return DEFAULT_TOLERANCE if rules.tolerance is None else rules.tolerance.milli / 1000


def _unavailable(metric: MetricSpec, namespace: str) -> MetricResult:
    """Of the metrics of APIs that this cluster has not."""
    if metric.type == "Pods" and metric.pods is not None:
        failure = f"unable to get metric {metric.pods.metric.name}: {_NO_CUSTOM}"
        return _failed("FailedGetPodsMetric", failure, f"failed to get pods metric value: {failure}")
    if metric.type == "Object" and metric.object is not None:
        of = metric.object.described_object
        # The order of the words is that of the real controller.
        failure = f"unable to get metric {metric.object.metric.name}: {of.kind} on {namespace} {of.name}/{_NO_CUSTOM}"
        return _failed("FailedGetObjectMetric", failure, f"failed to get object metric value: {failure}")
    if metric.type == "External" and metric.external is not None:
        return _external(metric.external, namespace)
    failure = f'unknown metric source type "{metric.type}"'
    return _failed("InvalidMetricSourceType", failure, failure)


def _external(source: OtherMetricSource, namespace: str) -> MetricResult:
    name = source.metric.name
    failure = (
        f"unable to get external metric {namespace}/{name}/{_go_selector(source.metric.selector)}: "
        f"{_NO_EXTERNAL.format(name=name)}"
    )
    average = source.target.average_value is not None
    what = f"{name} external metric" if average else f"external metric {name}"
    wrapped = f"failed to get {name} external metric value: failed to get {what}: {failure}"
    return _failed("FailedGetExternalMetric", failure, wrapped)


def _failed(reason: str, failure: str, wrapped: str) -> MetricResult:
    return MetricResult(NOTHING_MEASURED, failure=failure, reason=reason, wrapped=wrapped)


def _go_selector(selector: LabelSelector | None) -> str:
    """As Go prints it."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    requirements = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],}},"
        for each in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
