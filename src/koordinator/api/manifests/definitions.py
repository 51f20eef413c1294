"""The custom kinds, with what their types do not say: short names, columns, subresources, versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from koordinator.api import kinds, labels
from koordinator.api.kinds import Kind


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``."""

    name: str
    json_path: str
    type: str = "string"
    description: str = ""
    wide: bool = False
    """Shown only with ``-o wide``."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One CustomResourceDefinition. ``versions`` are served; the last one is stored."""

    versions: tuple[Kind[Any], ...]
    short_name: str = ""
    columns: tuple[Column, ...] = ()
    status_subresource: bool = True
    api_approved: str = ""
    """The pull request that allowed a group below k8s.io; an API server refuses such a group without it."""


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")
_SCHEDULER_PLUGINS_APPROVAL: Final = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"
_TOPOLOGY_APPROVAL: Final = "https://github.com/kubernetes/enhancements/pull/1870"

_PARENT_LABEL: Final = ".metadata.labels." + labels.QUOTA_PARENT.replace(".", r"\.")

# The columns of the original come first and in its order; kinds that have none there get what people look for. A column
# shows one value, so the lists of Devices and network topologies have none.
DEFINITIONS: Final = (
    Definition(
        (kinds.NODE_METRICS,),
        columns=(
            Column("CPU", ".status.nodeMetric.nodeUsage.resources.cpu", description="What the whole node uses"),
            Column("Memory", ".status.nodeMetric.nodeUsage.resources.memory", description="What the whole node uses"),
            Column("Reported", ".status.updateTime", "date", "How long ago the node last reported"),
            _AGE,
            Column("System-CPU", ".status.nodeMetric.systemUsage.resources.cpu", wide=True),
            Column("System-Memory", ".status.nodeMetric.systemUsage.resources.memory", wide=True),
            Column("Interval", ".spec.metricCollectPolicy.reportIntervalSeconds", "integer", "Seconds", wide=True),
            Column("Window", ".spec.metricCollectPolicy.aggregateDurationSeconds", "integer", "Seconds", wide=True),
        ),
    ),
    Definition(
        (kinds.NODE_SLOS,),
        columns=(
            Column("Suppress", ".spec.resourceUsedThresholdWithBE.enable", "boolean", "Whether BE pods are suppressed"),
            Column("Threshold", ".spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent", "integer", "Percent"),
            Column("Burst", ".spec.cpuBurstStrategy.policy", description="The policy of CPU burst"),
            _AGE,
            Column(
                "Memory-Evict", ".spec.resourceUsedThresholdWithBE.memoryEvictThresholdPercent", "integer", wide=True
            ),
        ),
    ),
    Definition(
        (kinds.CLUSTER_COLOCATION_PROFILES,),
        columns=(
            Column("QoS", ".spec.qosClass"),
            Column("Priority", ".spec.priorityClassName"),
            Column("Scheduler", ".spec.schedulerName"),
            Column("Probability", ".spec.probability"),
            _AGE,
        ),
    ),
    Definition(
        (kinds.RESERVATIONS,),
        columns=(
            Column("Phase", ".status.phase", description="The phase of reservation"),
            _AGE,
            Column("Node", ".status.nodeName"),
            Column("TTL", ".spec.ttl"),
            Column("Expires", ".spec.expires"),
            Column("CPU", ".status.allocatable.cpu", description="What is reserved", wide=True),
            Column("Memory", ".status.allocatable.memory", description="What is reserved", wide=True),
        ),
    ),
    Definition((kinds.DEVICES,), status_subresource=False),
    Definition(
        (kinds.POD_MIGRATION_JOBS,),
        short_name="pmj",
        columns=(
            Column("Phase", ".status.phase", description="The phase of PodMigrationJob"),
            Column("Status", ".status.status", description="The status of PodMigrationJob"),
            _AGE,
            Column("Node", ".status.nodeName"),
            Column("Reservation", ".spec.reservationOptions.reservationRef.name"),
            Column("PodNamespace", ".spec.podRef.namespace"),
            Column("Pod", ".spec.podRef.name"),
            Column("NewPod", ".status.podRef.name"),
            Column("TTL", ".spec.ttl"),
            Column("Mode", ".spec.mode", wide=True),
            Column("Reason", ".status.reason", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
    ),
    Definition(
        (kinds.DRAIN_NODES,),
        short_name="dn",
        columns=(
            Column("Phase", ".status.phase"),
            Column("Node", ".spec.nodeName"),
            Column("Confirm", ".spec.confirmState"),
            Column("Migrating", ".status.podMigrationSummary.Migrating", "integer", "Pods on their way"),
            Column("Moved", ".status.podMigrationSummary.Succeed", "integer", "Pods that have left"),
            Column("Stuck", ".status.podMigrationSummary.Unmigratable", "integer", "Pods that must not be moved"),
            _AGE,
            Column("Message", ".status.message", wide=True),
        ),
    ),
    Definition(
        (kinds.DRAIN_NODE_GROUPS,),
        short_name="dng",
        columns=(
            Column("Phase", ".status.phase"),
            Column("Nodes", ".status.totalCount", "integer", "The nodes of the group"),
            Column("Available", ".status.availableCount", "integer", "Nodes that can be drained"),
            Column("Running", ".status.runningCount", "integer", "Nodes that are being drained"),
            Column("Succeeded", ".status.succeededCount", "integer", "Nodes that are drained"),
            _AGE,
            Column("Unavailable", ".status.unavailableCount", "integer", "Nodes that cannot be drained", wide=True),
            Column("Failed", ".status.failedCount", "integer", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
    ),
    Definition(
        (kinds.POD_GROUPS,),
        status_subresource=False,
        api_approved=_SCHEDULER_PLUGINS_APPROVAL,
        columns=(
            Column("Phase", ".status.phase"),
            Column("MinMember", ".spec.minMember", "integer", "How many pods must be placed together"),
            Column("Scheduled", ".status.scheduled", "integer"),
            Column("Running", ".status.running", "integer"),
            Column("Succeeded", ".status.succeeded", "integer"),
            Column("Failed", ".status.failed", "integer"),
            _AGE,
        ),
    ),
    Definition(
        (kinds.ELASTIC_QUOTAS,),
        status_subresource=False,
        api_approved=_SCHEDULER_PLUGINS_APPROVAL,
        columns=(
            Column("Parent", _PARENT_LABEL, description="The quota that this one takes from"),
            Column("Min-CPU", ".spec.min.cpu", description="Guaranteed"),
            Column("Used-CPU", ".status.used.cpu"),
            Column("Max-CPU", ".spec.max.cpu", description="The most that can be used"),
            Column("Min-Memory", ".spec.min.memory", description="Guaranteed"),
            Column("Used-Memory", ".status.used.memory"),
            Column("Max-Memory", ".spec.max.memory", description="The most that can be used"),
            _AGE,
        ),
    ),
    Definition(
        (kinds.ELASTIC_QUOTA_PROFILES,),
        short_name="eqp",
        status_subresource=False,
        columns=(Column("Quota", ".spec.quotaName"), Column("Ratio", ".spec.resourceRatio"), _AGE),
    ),
    Definition(
        (kinds.NODE_RESOURCE_TOPOLOGIES, kinds.STORED_NODE_RESOURCE_TOPOLOGIES),
        short_name="node-res-topo",
        status_subresource=False,
        api_approved=_TOPOLOGY_APPROVAL,
        columns=(
            Column("Policy", ".topologyPolicies[0]", description="The kubelet's topology manager policy"),
            _AGE,
        ),
    ),
    Definition((kinds.CLUSTER_NETWORK_TOPOLOGIES,)),
    Definition(
        (kinds.RECOMMENDATIONS,),
        short_name="recom",
        columns=(
            _AGE,
            Column("Type", ".spec.target.type"),
            Column("Kind", ".spec.target.workload.kind"),
            Column("Name", ".spec.target.workload.name"),
            Column("LastUpdateTime", ".status.updateTime", "date"),
        ),
    ),
    Definition(
        (kinds.SCHEDULE_EXPLANATIONS,),
        short_name="sched-exp",
        columns=(
            Column("Object", ".spec.questionObjectKey", description="The object that was explained"),
            Column("Schedulable", ".status.schedulable", "boolean"),
            Column("Updated", ".status.lastUpdateTime", "date"),
            Column("Message", ".status.failedMessage"),
            _AGE,
        ),
    ),
)
