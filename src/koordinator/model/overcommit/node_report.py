"""A NodeMetric as the plan for its node reads it.

A report has sixty readings for thirty pods, and each node of thousands makes one a minute. Of a resource list only CPU
and memory are decoded here, to whole numbers; percentiles of pods and priorities as numbers are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordinator.api.kinds import NODE_METRICS, Kind
from koordinator.api.meta import FreeForm, Object, WireStruct
from koordinator.api.nodemetric import NodeMetricSpec
from koordinator.api.quantity import Bytes, MilliCPU
from koordinator.api.timestamps import Time
from koordinator.model.overcommit.amounts import Amounts

_NO_CPU: Final = MilliCPU(0)
_NO_MEMORY: Final = Bytes(0)
_tuple: Final = tuple.__new__


class ReportedResources(WireStruct):
    cpu: MilliCPU = _NO_CPU
    memory: Bytes = _NO_MEMORY

    @property
    def amounts(self) -> Amounts:
        """Missing ones count as zero."""
        # The sign makes plain numbers, which take half of the memory; a constructor that is code of Python's would be
        # called thirty times for each report.
        return _tuple(Amounts, (+self.cpu, +self.memory))

    @property
    def is_complete(self) -> bool:
        """Whether neither is missing; a zero is not."""
        return self.cpu is not _NO_CPU and self.memory is not _NO_MEMORY


class ReportedUsage(WireStruct):
    resources: ReportedResources = ReportedResources()


class ReportedPod(WireStruct):
    name: str = ""
    namespace: str = ""
    pod_usage: ReportedUsage = ReportedUsage()
    priority: str = ""
    extensions: FreeForm | None = None


class ReportedHostApplication(WireStruct):
    usage: ReportedUsage = ReportedUsage()
    priority: str = ""


class ReportedPercentiles(WireStruct):
    """Of one window."""

    usage: dict[str, ReportedUsage] = {}


class ReportedNode(WireStruct):
    node_usage: ReportedUsage = ReportedUsage()
    aggregated_node_usages: Sequence[ReportedPercentiles] = ()
    system_usage: ReportedUsage = ReportedUsage()


class ReportedReclaimable(WireStruct):
    resource: ReportedUsage = ReportedUsage()


class NodeReportStatus(WireStruct):
    update_time: Time | None = None
    node_metric: ReportedNode | None = None
    pods_metric: Sequence[ReportedPod] = ()
    host_application_metric: Sequence[ReportedHostApplication] = ()
    prod_reclaimable_metric: ReportedReclaimable | None = None


class NodeReport(Object):
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeReportStatus = NodeReportStatus()


NODE_REPORTS: Final = Kind(
    NODE_METRICS.group, NODE_METRICS.version, NODE_METRICS.plural, NODE_METRICS.name, NodeReport, namespaced=False
)
