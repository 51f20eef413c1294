"""slo.koordinator.sh NodeMetric: what one node and its pods use, as its agent last reported it."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from koordinator.api.constraints import Int32, Schema
from koordinator.api.device import DeviceInfo
from koordinator.api.duration import GoDuration
from koordinator.api.meta import FreeForm, Object, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.timestamps import Time

AVERAGE: Final = "avg"
P50: Final = "p50"
P90: Final = "p90"
P95: Final = "p95"
P99: Final = "p99"
AGGREGATIONS: Final = (AVERAGE, P50, P90, P95, P99)
"""The keys of an aggregated usage."""

INTERFERENCE: Final = "interference"
"""The key among the extensions of a pod, under which koordlet says how the pod suffers from others."""
INTERFERENCE_REMEDIES: Final = "interferenceRemedies"
"""The same, for what koordlet has done about that, and what it has brought."""
TCP_RETRANSMITS: Final = "tcp-retransmits"
PACKET_DROPS: Final = "packet-drops"
NETWORK_DELAY: Final = "network-delay"
NETWORK_INDICATORS: Final = (TCP_RETRANSMITS, PACKET_DROPS, NETWORK_DELAY)
"""How a pod may suffer on the network."""

USAGE_WITHOUT_PAGE_CACHE: Final = "usageWithoutPageCache"
USAGE_WITH_HOT_PAGE_CACHE: Final = "usageWithHotPageCache"
USAGE_WITH_PAGE_CACHE: Final = "usageWithPageCache"


class AggregatePolicy(WireStruct):
    """Over which times percentiles are worked out."""

    durations: list[GoDuration] = []
    """The windows over which percentiles are reported."""


class NodeMetricCollectPolicy(WireStruct):
    """How often the node reports, and over which times it averages."""

    aggregate_duration_seconds: int | None = None
    """The window over which plain usages are averaged."""
    report_interval_seconds: int | None = None
    """How often the status is written."""
    node_aggregate_policy: AggregatePolicy | None = None
    """Over which times percentiles are worked out."""
    node_memory_collect_policy: Annotated[
        str | None, Schema(enum=(USAGE_WITH_HOT_PAGE_CACHE, USAGE_WITHOUT_PAGE_CACHE, USAGE_WITH_PAGE_CACHE))
    ] = None
    """Which part of the page cache counts as memory that is used."""


class NodeMetricSpec(WireStruct):
    """What the node is to report; written by koord-manager."""

    metric_collect_policy: NodeMetricCollectPolicy | None = None
    """How often the node reports, and over which times it averages."""


class ResourceMap(WireStruct):
    """An amount of resources and, for accelerators, of each single device."""

    resources: ResourceList = {}
    """How much of each resource, such as cpu and memory."""
    devices: list[DeviceInfo] = []
    """How much of each single device."""


class AggregatedUsage(WireStruct):
    """Percentiles of the usage over one window."""

    usage: dict[str, ResourceMap] = {}
    """Aggregation (avg, p50, p90, p95, p99) -> usage."""
    duration: GoDuration = GoDuration()
    """The window that the samples are from."""


class NUMAUsage(WireStruct):
    """What is used of one NUMA node."""

    numa_node_id: Annotated[Int32, Schema(required=True)] = msgspec.field(default=0, name="numaNodeID")
    """The number of the NUMA node."""
    node_usage: ResourceMap = ResourceMap()
    """All that is used of it."""
    system_usage: ResourceMap = ResourceMap()
    """What the system alone uses of it."""


class NodeMetricInfo(WireStruct):
    """What the node as a whole uses."""

    node_usage: ResourceMap = ResourceMap()
    """All that is used, averaged over the window."""
    aggregated_node_usages: list[AggregatedUsage] = []
    """Percentiles of what the node uses, for each window."""
    system_usage: ResourceMap = ResourceMap()
    """The node's usage less that of its pods and host applications."""
    aggregated_system_usages: list[AggregatedUsage] = []
    """Percentiles of what the system uses, for each window."""
    numa_usages: list[NUMAUsage] = []
    """Usage by NUMA node."""


class PodMetricInfo(WireStruct):
    """What one pod uses."""

    name: str = ""
    """The name of the pod."""
    namespace: str = ""
    """The namespace of the pod."""
    pod_usage: ResourceMap = ResourceMap()
    """The usage of the whole pod, averaged over the window."""
    priority: str = ""
    """The priority class, such as koord-batch."""
    qos: str = ""
    """The quality-of-service class, such as BE."""
    extensions: Annotated[FreeForm | None, Schema(preserve_unknown_fields=True)] = None
    """What other programs report of the pod."""


class HostApplicationMetricInfo(WireStruct):
    """What a program beside Kubernetes uses."""

    name: str = ""
    """The name that the NodeSLO gives it."""
    usage: ResourceMap = ResourceMap()
    """Its usage, averaged over the window."""
    priority: str = ""
    """The priority class, such as koord-prod."""
    qos: str = ""
    """The quality-of-service class, such as LS."""


class ReclaimableMetric(WireStruct):
    """An amount that others may use."""

    resource: ResourceMap = ResourceMap()
    """The amount."""


class NodeMetricStatus(WireStruct):
    """The last report; written by koordlet."""

    update_time: Time | None = None
    """When the node last reported; readers take an old report for none."""
    node_metric: NodeMetricInfo | None = None
    """What the node as a whole uses."""
    pods_metric: list[PodMetricInfo] = []
    """What each pod uses."""
    host_application_metric: list[HostApplicationMetricInfo] = []
    """What programs beside Kubernetes use."""
    prod_reclaimable_metric: ReclaimableMetric | None = None
    """What Prod pods request and are predicted not to use."""
    prod_peak_metric: ReclaimableMetric | None = None
    """Predicted peak of Prod pods: system usage and the safety margin are in it already."""


class NodeMetric(Object):
    """What one node and its pods use, as its agent last reported it; it is named like the node."""

    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()
