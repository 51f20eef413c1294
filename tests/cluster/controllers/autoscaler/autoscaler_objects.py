"""Autoscalers, the pods of their targets, and what these use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, ResourceRequirements
from koordinator.api.quantity import Quantity
from koordinator.cluster.controllers.autoscaler.replica_count import Tolerance, Usage
from koordinator.cluster.controllers.autoscaler.types import (
    Autoscaler,
    AutoscalerSpec,
    ContainerMetrics,
    CrossVersionObjectReference,
    MetricSpec,
    MetricTarget,
    PodMetrics,
    ResourceMetricSource,
    Scale,
    ScaleSpec,
    ScaleStatus,
)
from koordinator.cluster.controllers.autoscaler.usage import samples_of
from tests.cluster.controllers.objects import NOW, ago, pod

WINDOW = timedelta(seconds=30)


def running(name: str, *, request: int | None = 100, ready: bool = True, age: float = 3600, **spec: Any) -> Pod:
    """A pod with one container that requests so many thousandths of a CPU, and as many bytes."""
    made = pod(name, ready=ago(age - 10) if ready else None)
    amounts = {} if request is None else {"cpu": Quantity.from_milli(request), "memory": Quantity.from_value(request)}
    container = Container(name="main", resources=ResourceRequirements(requests=amounts))
    status = msgspec.structs.replace(made.status, start_time=ago(age))
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, containers=[container], **spec), status=status
    )


def in_phase(made: Pod, phase: str) -> Pod:
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, phase=phase))


def uses(name: str, cpu: int, container: str = "main") -> PodMetrics:
    usage = {"cpu": Quantity.from_milli(cpu), "memory": Quantity.from_value(cpu)}
    return PodMetrics(
        metadata=ObjectMeta(name=name, namespace="default"),
        timestamp=NOW,
        window="30s",
        containers=[ContainerMetrics(name=container, usage=usage)],
    )


def usage(pods: Sequence[Pod], cpu: Sequence[int], *, resource: str = "cpu") -> Usage:
    """The first pods use so much; of the others nothing is known."""
    metrics = [uses(each.metadata.name, amount) for each, amount in zip(pods, cpu, strict=False)]
    return usage_in(pods, metrics, resource=resource)


def usage_in(pods: Sequence[Pod], metrics: Sequence[PodMetrics], *, resource: str = "cpu") -> Usage:
    return Usage(resource, pods, samples_of(metrics, resource), len(pods), Tolerance(), NOW)


def autoscaler(*metrics: MetricSpec, percent: int = 50, **spec: Any) -> Autoscaler:
    cpu = MetricSpec(
        type="Resource", resource=ResourceMetricSource(name="cpu", target=MetricTarget(average_utilization=percent))
    )
    given = {"min_replicas": 1, "max_replicas": 10, "metrics": list(metrics) or [cpu], **spec}
    target = CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name="web")
    return Autoscaler(
        metadata=ObjectMeta(name="web", namespace="default", uid="hpa"),
        spec=AutoscalerSpec(scale_target_ref=target, **given),
    )


def scale(replicas: int, selector: str = "app=web") -> Scale:
    return Scale(spec=ScaleSpec(replicas=replicas), status=ScaleStatus(replicas=replicas, selector=selector))
