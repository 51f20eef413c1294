"""slo.koordinator.sh NodeMetric: what one node and its pods use, as its agent last reported it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

from koordinator.api.constraints import Int32, Schema
from koordinator.api.device import DeviceInfo
from koordinator.api.duration import GoDuration
from koordinator.api.meta import FreeForm, Object, WireStruct
from koordinator.api.pod import ResourceList

AVERAGE: Final = "avg"
P50: Final = "p50"
P90: Final = "p90"
P95: Final = "p95"
P99: Final = "p99"
AGGREGATIONS: Final = (AVERAGE, P50, P90, P95, P99)
"""The keys of an aggregated usage."""

USAGE_WITHOUT_PAGE_CACHE: Final = "usageWithoutPageCache"
USAGE_WITH_HOT_PAGE_CACHE: Final = "usageWithHotPageCache"
USAGE_WITH_PAGE_CACHE: Final = "usageWithPageCache"


class AggregatePolicy(WireStruct):
    durations: list[GoDuration] = []
    """The windows over which percentiles are reported."""


class NodeMetricCollectPolicy(WireStruct):
    aggregate_duration_seconds: int | None = None
    """The window over which plain usages are averaged."""
    report_interval_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: Annotated[
        str | None, Schema(enum=(USAGE_WITH_HOT_PAGE_CACHE, USAGE_WITHOUT_PAGE_CACHE, USAGE_WITH_PAGE_CACHE))
    ] = None


class NodeMetricSpec(WireStruct):
    metric_collect_policy: NodeMetricCollectPolicy | None = None


class ResourceMap(WireStruct):
    """An amount of resources and, for accelerators, of each single device."""

    resources: ResourceList = {}
    devices: list[DeviceInfo] = []


class AggregatedUsage(WireStruct):
    usage: dict[str, ResourceMap] = {}
    """Aggregation (avg, p50, p90, p95, p99) -> usage."""
    duration: GoDuration = GoDuration()
    """The window that the samples are from."""


class NUMAUsage(WireStruct):
    numa_node_id: Annotated[Int32, Schema(required=True)] = msgspec.field(default=0, name="numaNodeID")
    node_usage: ResourceMap = ResourceMap()
    system_usage: ResourceMap = ResourceMap()


class NodeMetricInfo(WireStruct):
    node_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: list[AggregatedUsage] = []
    system_usage: ResourceMap = ResourceMap()
    """The node's usage less that of its pods and host applications."""
    aggregated_system_usages: list[AggregatedUsage] = []
    numa_usages: list[NUMAUsage] = []


class PodMetricInfo(WireStruct):
    name: str = ""
    namespace: str = ""
    pod_usage: ResourceMap = ResourceMap()
    priority: str = ""
    """The priority class, such as koord-batch."""
    qos: str = ""
    """The quality-of-service class, such as BE."""
    extensions: Annotated[FreeForm | None, Schema(preserve_unknown_fields=True)] = None


class HostApplicationMetricInfo(WireStruct):
    name: str = ""
    usage: ResourceMap = ResourceMap()
    priority: str = ""
    qos: str = ""


class ReclaimableMetric(WireStruct):
    resource: ResourceMap = ResourceMap()


class NodeMetricStatus(WireStruct):
    update_time: datetime | None = None
    """When the node last reported; readers take an old report for none."""
    node_metric: NodeMetricInfo | None = None
    pods_metric: list[PodMetricInfo] = []
    host_application_metric: list[HostApplicationMetricInfo] = []
    prod_reclaimable_metric: ReclaimableMetric | None = None
    """What Prod pods ask for and are predicted not to use."""
    prod_peak_metric: ReclaimableMetric | None = None
    """Predicted peak of Prod pods: system usage and the safety margin are in it already."""


class NodeMetric(Object):
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()
