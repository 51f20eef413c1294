"""Every kind that is read or written: where the API serves it, and the type that it decodes to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from koordinator.api import (
    admission_registration,
    batch,
    cluster_network_topology,
    colocation_profile,
    core,
    device,
    drain_node,
    drain_node_group,
    elastic_quota,
    elastic_quota_profile,
    generic_workload,
    node,
    node_resource_topology,
    nodemetric,
    nodeslo,
    pod,
    pod_group,
    pod_migration_job,
    recommendation,
    reservation,
    reviews,
    schedule_explanation,
    volume,
    workload,
)
from koordinator.api.meta import Object

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A group, version and plural, the kind's name and its type."""

    group: str
    version: str
    plural: str
    name: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``plural.version.group`` as event filters name it; the plural alone in the core group."""
        return f"{self.plural}.{self.version}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The request path; without a namespace, that of all namespaces."""
        path = _collection_path(self.group, self.version, self.plural, namespace if self.namespaced else "")
        if name:
            path = f"{path}/{name}"
        return f"{path}/{subresource}" if subresource else path


@lru_cache(maxsize=1024)
def _collection_path(group: str, version: str, plural: str, namespace: str) -> str:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


PODS = Kind("", "v1", "pods", "Pod", pod.Pod)
NODES = Kind("", "v1", "nodes", "Node", node.Node, namespaced=False)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", core.Namespace, namespaced=False)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", core.ConfigMap)
TOKEN_REVIEWS = Kind(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", reviews.TokenReview, namespaced=False
)
SUBJECT_ACCESS_REVIEWS = Kind(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    reviews.SubjectAccessReview,
    namespaced=False,
)
SELF_SUBJECT_ACCESS_REVIEWS = Kind(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    reviews.SelfSubjectAccessReview,
    namespaced=False,
)
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", Object)
SECRETS = Kind("", "v1", "secrets", "Secret", core.Secret)
SERVICES = Kind("", "v1", "services", "Service", workload.Service)
EVENTS = Kind("", "v1", "events", "Event", core.Event)
REPLICATION_CONTROLLERS = Kind(
    "", "v1", "replicationcontrollers", "ReplicationController", workload.ReplicationController
)
PERSISTENT_VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", volume.PersistentVolume, namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", volume.PersistentVolumeClaim
)
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", workload.Workload)
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet", workload.Workload)
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet", workload.Workload)
DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet", workload.Workload)
JOBS = Kind("batch", "v1", "jobs", "Job", batch.Job)
CRON_JOBS = Kind("batch", "v1", "cronjobs", "CronJob", batch.CronJob)
CLONE_SETS = Kind("apps.kruise.io", "v1alpha1", "clonesets", "CloneSet", workload.Workload)
"""OpenKruise's, as the next."""
ADVANCED_STATEFUL_SETS = Kind("apps.kruise.io", "v1beta1", "statefulsets", "StatefulSet", workload.Workload)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", node.Lease)
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", core.PriorityClass, namespaced=False
)
GENERIC_WORKLOADS = Kind("scheduling.k8s.io", "v1alpha1", "workloads", "Workload", generic_workload.GenericWorkload)
"""Served where the API server has the gate GenericWorkload."""
POD_DISRUPTION_BUDGETS = Kind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", workload.PodDisruptionBudget
)
STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", volume.StorageClass, namespaced=False)
CSI_NODES = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", volume.CSINode, namespaced=False)
CSI_DRIVERS = Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", volume.CSIDriver, namespaced=False)
CSI_STORAGE_CAPACITIES = Kind(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", volume.CSIStorageCapacity
)
VOLUME_ATTACHMENTS = Kind(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", volume.VolumeAttachment, namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", Object, namespaced=False
)
MUTATING_WEBHOOK_CONFIGURATIONS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    admission_registration.WebhookConfiguration,
    namespaced=False,
)
VALIDATING_WEBHOOK_CONFIGURATIONS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    admission_registration.WebhookConfiguration,
    namespaced=False,
)

_SLO = "slo.koordinator.sh"
_SCHEDULING = "scheduling.koordinator.sh"
_SCHEDULER_PLUGINS = "scheduling.sigs.k8s.io"

NODE_METRICS = Kind(_SLO, "v1alpha1", "nodemetrics", "NodeMetric", nodemetric.NodeMetric, namespaced=False)
NODE_SLOS = Kind(_SLO, "v1alpha1", "nodeslos", "NodeSLO", nodeslo.NodeSLO, namespaced=False)
CLUSTER_COLOCATION_PROFILES = Kind(
    "config.koordinator.sh",
    "v1alpha1",
    "clustercolocationprofiles",
    "ClusterColocationProfile",
    colocation_profile.ClusterColocationProfile,
    namespaced=False,
)
RESERVATIONS = Kind(_SCHEDULING, "v1alpha1", "reservations", "Reservation", reservation.Reservation, namespaced=False)
DEVICES = Kind(_SCHEDULING, "v1alpha1", "devices", "Device", device.Device, namespaced=False)
POD_MIGRATION_JOBS = Kind(
    _SCHEDULING, "v1alpha1", "podmigrationjobs", "PodMigrationJob", pod_migration_job.PodMigrationJob, namespaced=False
)
DRAIN_NODES = Kind(_SCHEDULING, "v1alpha1", "drainnodes", "DrainNode", drain_node.DrainNode, namespaced=False)
DRAIN_NODE_GROUPS = Kind(
    _SCHEDULING, "v1alpha1", "drainnodegroups", "DrainNodeGroup", drain_node_group.DrainNodeGroup, namespaced=False
)
CLUSTER_NETWORK_TOPOLOGIES = Kind(
    _SCHEDULING,
    "v1alpha1",
    "clusternetworktopologies",
    "ClusterNetworkTopology",
    cluster_network_topology.ClusterNetworkTopology,
    namespaced=False,
)
SCHEDULE_EXPLANATIONS = Kind(
    _SCHEDULING, "v1alpha1", "scheduleexplanations", "ScheduleExplanation", schedule_explanation.ScheduleExplanation
)
POD_GROUPS = Kind(_SCHEDULER_PLUGINS, "v1alpha1", "podgroups", "PodGroup", pod_group.PodGroup)
ELASTIC_QUOTAS = Kind(_SCHEDULER_PLUGINS, "v1alpha1", "elasticquotas", "ElasticQuota", elastic_quota.ElasticQuota)
ELASTIC_QUOTA_PROFILES = Kind(
    "quota.koordinator.sh",
    "v1alpha1",
    "elasticquotaprofiles",
    "ElasticQuotaProfile",
    elastic_quota_profile.ElasticQuotaProfile,
)
NODE_RESOURCE_TOPOLOGIES = Kind(
    "topology.node.k8s.io",
    "v1alpha1",
    "noderesourcetopologies",
    "NodeResourceTopology",
    node_resource_topology.NodeResourceTopology,
    namespaced=False,
)
STORED_NODE_RESOURCE_TOPOLOGIES = Kind(
    "topology.node.k8s.io",
    "v1alpha2",
    "noderesourcetopologies",
    "NodeResourceTopology",
    node_resource_topology.StoredNodeResourceTopology,
    namespaced=False,
)
"""The version that is stored; programs read and write the one above."""
RECOMMENDATIONS = Kind(
    "analysis.koordinator.sh", "v1alpha1", "recommendations", "Recommendation", recommendation.Recommendation
)
