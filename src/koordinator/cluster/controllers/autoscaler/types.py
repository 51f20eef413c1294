"""HorizontalPodAutoscalers, the scales that they change, and the metrics that they go by."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import Schema
from koordinator.api.kinds import Kind
from koordinator.api.meta import Condition, FreeForm, LabelSelector, Object, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.timestamps import Time


class CrossVersionObjectReference(WireStruct):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class MetricTarget(WireStruct):
    """One of the three is set."""

    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None
    """Percent of what the pods request."""


class MetricIdentifier(WireStruct):
    name: str = ""
    selector: LabelSelector | None = None


class ResourceMetricSource(WireStruct):
    """Of whole pods or, where ``container`` is not empty, of one container of each."""

    name: str = ""
    container: str = ""
    target: MetricTarget = MetricTarget()


class OtherMetricSource(WireStruct):
    """A metric that no API in this cluster has: of pods, of an object, or of something outside."""

    metric: MetricIdentifier = MetricIdentifier()
    described_object: CrossVersionObjectReference = CrossVersionObjectReference()
    target: MetricTarget = MetricTarget()


class MetricSpec(WireStruct):
    type: str = ""
    resource: ResourceMetricSource | None = None
    container_resource: ResourceMetricSource | None = None
    pods: OtherMetricSource | None = None
    object: OtherMetricSource | None = None
    external: OtherMetricSource | None = None


class ScalingPolicy(WireStruct):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(WireStruct):
    """For one direction."""

    stabilization_window_seconds: int | None = None
    select_policy: str = "Max"
    policies: list[ScalingPolicy] = []
    tolerance: Quantity | None = None


class AutoscalerBehavior(WireStruct):
    scale_up: ScalingRules = ScalingRules()
    scale_down: ScalingRules = ScalingRules()


class AutoscalerSpec(WireStruct):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: list[MetricSpec] = []
    behavior: AutoscalerBehavior | None = None

    @property
    def least(self) -> int:
        return 1 if self.min_replicas is None else self.min_replicas


class AutoscalerStatus(WireStruct):
    last_scale_time: Time | None = None
    current_replicas: int = 0
    desired_replicas: Annotated[int, Schema(required=True)] = 0
    current_metrics: list[FreeForm] | None = None
    conditions: list[Condition] = []


class Autoscaler(Object):
    spec: AutoscalerSpec = AutoscalerSpec()
    status: AutoscalerStatus = AutoscalerStatus()


class ScaleSpec(WireStruct):
    replicas: int = 0


class ScaleStatus(WireStruct):
    replicas: int = 0
    selector: str = ""


class Scale(Object):
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class ContainerMetrics(WireStruct):
    name: str = ""
    usage: ResourceList = {}


class PodMetrics(Object):
    """Of metrics.k8s.io."""

    timestamp: Time | None = None
    window: str = ""
    containers: list[ContainerMetrics] = []


class PodMetricsList(WireStruct):
    items: list[PodMetrics] = []


AUTOSCALERS: Final = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Autoscaler)
