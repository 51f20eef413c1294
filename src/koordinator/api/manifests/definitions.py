"""The custom kinds, with what their types do not say: short names, columns, subresources, versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from koordinator.api import kinds
from koordinator.api.kinds import Kind


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``."""

    name: str
    json_path: str
    type: str = "string"
    description: str = ""


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

DEFINITIONS: Final = (
    Definition((kinds.NODE_METRICS,)),
    Definition((kinds.NODE_SLOS,)),
    Definition((kinds.CLUSTER_COLOCATION_PROFILES,)),
    Definition(
        (kinds.RESERVATIONS,),
        columns=(
            Column("Phase", ".status.phase", description="The phase of reservation"),
            _AGE,
            Column("Node", ".status.nodeName"),
            Column("TTL", ".spec.ttl"),
            Column("Expires", ".spec.expires"),
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
        ),
    ),
    Definition((kinds.POD_GROUPS,), status_subresource=False, api_approved=_SCHEDULER_PLUGINS_APPROVAL),
    Definition((kinds.ELASTIC_QUOTAS,), status_subresource=False, api_approved=_SCHEDULER_PLUGINS_APPROVAL),
    Definition((kinds.ELASTIC_QUOTA_PROFILES,), short_name="eqp", status_subresource=False),
    Definition(
        (kinds.NODE_RESOURCE_TOPOLOGIES, kinds.STORED_NODE_RESOURCE_TOPOLOGIES),
        short_name="node-res-topo",
        status_subresource=False,
        api_approved=_TOPOLOGY_APPROVAL,
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
    Definition((kinds.SCHEDULE_EXPLANATIONS,), short_name="sched-exp"),
)
