"""NodeMetrics that say what cannot be. koordlet does not write such, but whoever may write NodeMetrics can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordinator.api.kinds import NODE_METRICS
from tests.real_world.broken_documents import BrokenObject, metric_document

_USAGE = "status.nodeMetric.nodeUsage.resources.cpu"
_NEGATIVE = {"cpu": "-3", "memory": "-1Gi"}
_ENDLESS = {"cpu": "1e99999", "memory": "1e99999"}


def _usage(name: str, what: str, **usage: str) -> BrokenObject:
    return BrokenObject(f"metric-{name}", what, NODE_METRICS, _USAGE, metric_document(usage))


BROKEN_METRICS: Final[Sequence[BrokenObject]] = (
    _usage("below-zero", "a node uses less than nothing", cpu="-3", memory="1Gi"),
    _usage("far-below-zero", "an exponent that no machine number holds", cpu="-1e99999", memory="1Gi"),
    _usage("beyond-all-bounds", "more than an int64 of milli-CPU", cpu="9223372036854775807E", memory="1Gi"),
    _usage("far-beyond-all-bounds", "an exponent that no machine number holds", cpu="1e99999", memory="1Gi"),
    _usage("infinitely-little", "a negative exponent that no machine number holds", cpu="1e-99999", memory="1Gi"),
    BrokenObject(
        "metric-system-below-zero",
        "the system uses less than nothing",
        NODE_METRICS,
        "status.nodeMetric.systemUsage.resources.cpu",
        metric_document(
            {"cpu": "1"}, nodeMetric={"systemUsage": {"resources": _NEGATIVE}, "nodeUsage": {"resources": {"cpu": "1"}}}
        ),
    ),
    BrokenObject(
        "metric-percentile-below-zero",
        "a percentile below zero",
        NODE_METRICS,
        "status.nodeMetric.aggregatedNodeUsages[0].usage.p95.resources.cpu",
        metric_document(
            {},
            nodeMetric={
                "nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                "aggregatedNodeUsages": [{"duration": "5m", "usage": {"p95": {"resources": _NEGATIVE}}}],
            },
        ),
    ),
    BrokenObject(
        "metric-pod-below-zero",
        "a pod uses less than nothing",
        NODE_METRICS,
        "status.podsMetric[0].podUsage.resources.cpu",
        metric_document(
            {"cpu": "1", "memory": "1Gi"},
            podsMetric=[{"namespace": "default", "name": "web", "podUsage": {"resources": _NEGATIVE}}],
        ),
    ),
    BrokenObject(
        "metric-reclaimable-below-zero",
        "less than nothing is reclaimable",
        NODE_METRICS,
        "status.prodReclaimableMetric.resource.resources.cpu",
        metric_document({"cpu": "1", "memory": "1Gi"}, prodReclaimableMetric={"resource": {"resources": _NEGATIVE}}),
    ),
    BrokenObject(
        "metric-of-the-future",
        "a report that is dated far ahead",
        NODE_METRICS,
        "status.updateTime",
        metric_document({"cpu": "1", "memory": "1Gi"}, updateTime="9999-12-31T23:59:59Z"),
    ),
    BrokenObject(
        "metric-negative-interval",
        "a report interval and a window below zero",
        NODE_METRICS,
        "spec.metricCollectPolicy.reportIntervalSeconds",
        {
            **metric_document({"cpu": "1", "memory": "1Gi"}),
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": -60, "aggregateDurationSeconds": -1}},
        },
    ),
    _usage("memory-below-zero", "less than no memory is used", cpu="1", memory="-1Gi"),
    _usage("text", "a usage that is no number", cpu="three", memory="1Gi"),
    _usage("nan", "not a number", cpu="NaN", memory="1Gi"),
    BrokenObject(
        "metric-pod-beyond-all-bounds",
        "a pod uses more than there is",
        NODE_METRICS,
        "status.podsMetric[0].podUsage.resources.cpu",
        metric_document(
            {"cpu": "1", "memory": "1Gi"},
            podsMetric=[{"namespace": "default", "name": "web", "podUsage": {"resources": _ENDLESS}}],
        ),
    ),
    BrokenObject(
        "metric-window-below-zero",
        "percentiles of less than no time",
        NODE_METRICS,
        "status.nodeMetric.aggregatedNodeUsages[0].duration",
        metric_document(
            {},
            nodeMetric={
                "nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                "aggregatedNodeUsages": [{"duration": "-5m", "usage": {"p95": {"resources": {"cpu": "1"}}}}],
            },
        ),
    ),
    BrokenObject(
        "metric-of-the-past",
        "a report from before all computers",
        NODE_METRICS,
        "status.updateTime",
        metric_document({"cpu": "1", "memory": "1Gi"}, updateTime="0001-01-01T00:00:00Z"),
    ),
    BrokenObject(
        "metric-endless-interval",
        "a report interval without end",
        NODE_METRICS,
        "spec.metricCollectPolicy.reportIntervalSeconds",
        {
            **metric_document({"cpu": "1", "memory": "1Gi"}),
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 9223372036854775807}},
        },
    ),
)
