"""The two kinds of metrics.k8s.io/v1beta1: read only, never stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Column, Resource
from koordinator.cluster.strategy.nothing_stored import NothingStored

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
