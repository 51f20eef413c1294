"""metrics.k8s.io, which ``kubectl top`` reads: the usage of nodes and pods, computed from NodeMetrics for each request.

On a real cluster metrics-server serves this API. Here it would measure nothing that the NodeMetrics do not say already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity, QuantityError
from koordinator.base.durations import format_duration
from koordinator.cluster.resource import Column, Resource
from koordinator.cluster.strategy.nothing_stored import NothingStored

# From a NodeMetric to the NodeMetrics and PodMetrics of metrics.k8s.io; pure.


_SHOWN: Final = ("cpu", "memory")
_AGGREGATED_SECONDS: Final = 300
_REPORTED_SECONDS: Final = 60
"""What koordlet takes where the collect policy of a NodeMetric says nothing."""
_MISSED_REPORTS: Final = 5
WHOLE_POD: Final = "pod"
"""The container name under which the usage of several containers is shown: a NodeMetric has that of pods alone."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one NodeMetric says: when, for which window, and how much is used (resource -> quantity)."""

    timestamp: str
    window: str
    node: Mapping[str, str]
    pods: Mapping[tuple[str, str], Mapping[str, str]]
    """(namespace, name) -> usage."""


def read_report(node_metric: Document, now: datetime) -> Report | None:
    """None when the node never reported, or when five reports in a row have failed to come."""
    status = node_metric.get("status") or {}
    policy = (node_metric.get("spec") or {}).get("metricCollectPolicy") or {}
    timestamp = status.get("updateTime")
    if not timestamp or _is_older(timestamp, now - _expiry(policy)):
        return None
    window = timedelta(seconds=policy.get("aggregateDurationSeconds") or _AGGREGATED_SECONDS)
    return Report(
        timestamp,
        format_duration(window),
        _usage((status.get("nodeMetric") or {}).get("nodeUsage")),
        {
            (pod.get("namespace") or "", pod.get("name") or ""): _usage(pod.get("podUsage"))
            for pod in status.get("podsMetric") or ()
        },
    )


def node_usage(report: Report, metadata: Document) -> Document:
    """NodeMetrics of a node that reports its own usage."""
    return {**_head(report, metadata), "usage": dict(report.node)}


def pod_usage(report: Report, metadata: Document, usage: Mapping[str, str], containers: Iterable[str]) -> Document:
    """PodMetrics; ``containers`` are the names of the pod's containers."""
    names = list(containers)
    name = names[0] if len(names) == 1 else WHOLE_POD
    return {**_head(report, metadata), "containers": [{"name": name, "usage": dict(usage)}]}


def _head(report: Report, metadata: Document) -> Document:
    """Of the object's metadata only what identifies and selects it."""
    kept = {key: metadata[key] for key in ("name", "namespace", "creationTimestamp", "labels") if metadata.get(key)}
    return {"metadata": kept, "timestamp": report.timestamp, "window": report.window}


def _usage(usage: Document | None) -> dict[str, str]:
    resources = (usage or {}).get("resources") or {}
    return {name: str(resources[name]) for name in _SHOWN if name in resources and _is_quantity(resources[name])}


def _is_quantity(value: object) -> bool:
    """One amount that is none would make the whole list unreadable to kubectl."""
    try:
        Quantity.parse(str(value))
    except QuantityError:
        return False
    return True


def _is_older(timestamp: str, limit: datetime) -> bool:
    try:
        return datetime.fromisoformat(timestamp) < limit
    except (TypeError, ValueError):
        return True  # says nothing of when it was made


def _expiry(policy: Document) -> timedelta:
    return timedelta(seconds=_MISSED_REPORTS * (policy.get("reportIntervalSeconds") or _REPORTED_SECONDS))


# The two kinds of metrics.k8s.io/v1beta1: read only, never stored.


GROUP: Final = "metrics.k8s.io"
_QUANTITIES: Final[Document] = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "The amount of each resource that is in use: cpu and memory.",
}
_COMMON: Final[Document] = {
    "timestamp": {"type": "string", "format": "date-time", "description": "When the node reported."},
    "window": {"type": "string", "description": "The time before it over which the usage is averaged."},
}


class _UsageStrategy(NothingStored):
    """Rows like those of metrics-server: the usage of a node or of a whole pod."""

    def columns(self) -> Sequence[Column]:
        return (Column("Name", format="name"), Column("cpu"), Column("memory"), Column("Window"))

    def row(self, obj: Document, now: datetime) -> list[Any]:
        usage = obj["usage"] if "usage" in obj else obj["containers"][0]["usage"]
        return [obj["metadata"]["name"], usage.get("cpu") or "0", usage.get("memory") or "0", obj["window"]]


def _resource(plural: str, kind: str, *, namespaced: bool, description: str, properties: Document) -> Resource:
    return Resource(
        group=GROUP,
        version="v1beta1",
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        strategy=_UsageStrategy(),
        # Not the kind in lower case: nodemetrics are what koordlet reports.
        singular=plural.removesuffix("s"),
        verbs=("get", "list"),
        schema={"type": "object", "description": description, "properties": {**_COMMON, **properties}},
    )


_CONTAINER: Final[Document] = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "description": "The container; pod when the pod has several, since usage is reported for whole pods.",
        },
        "usage": _QUANTITIES,
    },
}
METRICS_RESOURCES: Final = (
    _resource(
        "nodes",
        "NodeMetrics",
        namespaced=False,
        description="What one node uses, as its NodeMetric last reported.",
        properties={"usage": _QUANTITIES},
    ),
    _resource(
        "pods",
        "PodMetrics",
        namespaced=True,
        description="What one pod uses, as the NodeMetric of its node last reported.",
        properties={
            "containers": {"type": "array", "items": _CONTAINER, "description": "Usage, container by container."}
        },
    ),
)
