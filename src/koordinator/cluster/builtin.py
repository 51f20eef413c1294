"""Every built-in kind that the embedded API serves, with the names that kubectl knows it by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_label, path_segment, subdomain_in_bytes
from koordinator.cluster.builtin_extensions import access_and_network, extensions, flow_control_kinds
from koordinator.cluster.builtin_resource import built_in
from koordinator.cluster.resource import Resource, View
from koordinator.cluster.strategy import (
    autoscaler,
    device_rules,
    network_rules,
    storage_rules,
    tables,
    workload_tables,
)
from koordinator.cluster.strategy.cluster_kinds import (
    DisruptionBudgetStrategy,
    NamespaceStrategy,
    VolumeStrategy,
)
from koordinator.cluster.strategy.custom_resource_definition import CustomResourceDefinitionStrategy
from koordinator.cluster.strategy.event import (
    EVENT_TABLE,
    check_core_event,
    check_event,
    event_field_labels,
    to_core,
    to_events_group,
)
from koordinator.cluster.strategy.job_rules import cron_job
from koordinator.cluster.strategy.node import NodeStrategy
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.pod import PodStrategy
from koordinator.cluster.strategy.pod_subresources import pod_views
from koordinator.cluster.strategy.priority_class import PriorityClassStrategy
from koordinator.cluster.strategy.quota_rules import LimitRangeStrategy, ResourceQuotaStrategy
from koordinator.cluster.strategy.rules import Rules, checked, not_negative, positive
from koordinator.cluster.strategy.secret import ConfigMapStrategy, SecretStrategy
from koordinator.cluster.strategy.service import ServiceStrategy
from koordinator.cluster.strategy.table import lookup
from koordinator.cluster.strategy.workload import DaemonSetStrategy, JobStrategy, WorkloadStrategy
from koordinator.cluster.strategy.workload_rules import controller_revision, pod_template, replication_controller

_ALL: Final = ("all",)
_EXTENSIONS: Final = ("api-extensions",)
_SCALED: Final = ("status", "scale")
_LEASE: Final = Rules(("spec.leaseDurationSeconds", positive), ("spec.leaseTransitions", not_negative))


def _core() -> list[Resource]:
    v1 = "v1"
    events = ObjectStrategy(
        v1,
        "Event",
        table=EVENT_TABLE,
        field_labels=event_field_labels(v1),
        name_check=path_segment,
        check=check_core_event,
    )
    volumes = VolumeStrategy(tables.PERSISTENT_VOLUME)
    claims = ObjectStrategy(
        v1, "PersistentVolumeClaim", table=tables.PERSISTENT_VOLUME_CLAIM, status=True, check=storage_rules.claim
    )
    accounts = ObjectStrategy(v1, "ServiceAccount", table=tables.SERVICE_ACCOUNT)
    controllers = ObjectStrategy(
        v1,
        "ReplicationController",
        table=workload_tables.REPLICA_SET,
        generation=True,
        status=True,
        check=replication_controller,
        name_check=subdomain_in_bytes,
    )
    quotas = ResourceQuotaStrategy(tables.RESOURCE_QUOTA)
    namespaces, pods = NamespaceStrategy(tables.NAMESPACE), PodStrategy()
    status = ("status",)
    return [
        built_in(
            v1, "pods", "Pod", "po",
            strategy=pods, categories=_ALL, graceful_deletion=True,
            subresources=("status", "binding", "eviction"), views=pod_views(pods),
        ),
        built_in(v1, "nodes", "Node", "no", strategy=NodeStrategy(), namespaced=False, subresources=status),
        built_in(
            v1, "namespaces", "Namespace", "ns",
            strategy=namespaces, namespaced=False, subresources=status, views={"finalize": View(namespaces.finalize)},
        ),
        built_in(
            v1, "services", "Service", "svc",
            strategy=ServiceStrategy(tables.SERVICE), categories=_ALL, subresources=status,
        ),
        built_in(
            v1, "endpoints", "Endpoints", "ep",
            strategy=ObjectStrategy(v1, "Endpoints", table=tables.ENDPOINTS, check=network_rules.endpoints),
        ),
        built_in(v1, "events", "Event", "ev", strategy=events),
        built_in(v1, "configmaps", "ConfigMap", "cm", strategy=ConfigMapStrategy()),
        built_in(v1, "secrets", "Secret", strategy=SecretStrategy()),
        built_in(
            v1, "persistentvolumes", "PersistentVolume", "pv", strategy=volumes, namespaced=False, subresources=status
        ),
        built_in(v1, "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", strategy=claims, subresources=status),
        built_in(v1, "serviceaccounts", "ServiceAccount", "sa", strategy=accounts, subresources=("token",)),
        built_in(
            v1, "replicationcontrollers", "ReplicationController", "rc",
            strategy=controllers, categories=_ALL, subresources=_SCALED,
        ),
        built_in(
            v1, "podtemplates", "PodTemplate",
            strategy=ObjectStrategy(v1, "PodTemplate", generation=True, check=pod_template),
        ),
        built_in(v1, "limitranges", "LimitRange", "limits", strategy=LimitRangeStrategy()),
        built_in(
            v1, "resourcequotas", "ResourceQuota", "quota",
            strategy=quotas, subresources=status,
        ),
    ]  # fmt: skip


def _workloads() -> list[Resource]:
    apps, batch = "apps/v1", "batch/v1"
    replicas = {"status.replicas": lambda obj: str(lookup(obj, ("status", "replicas")) or 0)}
    succeeded = {"status.successful": lambda obj: str(lookup(obj, ("status", "succeeded")) or 0)}
    replica_sets = WorkloadStrategy(apps, "ReplicaSet", table=workload_tables.REPLICA_SET, field_labels=replicas)
    return [
        built_in(
            apps, "deployments", "Deployment", "deploy",
            strategy=WorkloadStrategy(apps, "Deployment", table=workload_tables.DEPLOYMENT),
            categories=_ALL, subresources=_SCALED,
        ),
        built_in(
            apps, "replicasets", "ReplicaSet", "rs", strategy=replica_sets, categories=_ALL, subresources=_SCALED
        ),
        built_in(
            apps, "daemonsets", "DaemonSet", "ds",
            strategy=DaemonSetStrategy(apps, "DaemonSet", table=workload_tables.DAEMON_SET),
            categories=_ALL, subresources=("status",),
        ),
        built_in(
            apps, "statefulsets", "StatefulSet", "sts",
            strategy=WorkloadStrategy(
                apps, "StatefulSet", table=workload_tables.STATEFUL_SET, name_check=dns_label
            ),
            categories=_ALL, subresources=_SCALED,
        ),
        built_in(
            apps, "controllerrevisions", "ControllerRevision",
            strategy=ObjectStrategy(
                apps, "ControllerRevision", table=workload_tables.CONTROLLER_REVISION, check=controller_revision
            ),
        ),
        built_in(
            batch, "jobs", "Job",
            strategy=JobStrategy(table=workload_tables.JOB, field_labels=succeeded),
            categories=_ALL, subresources=("status",),
        ),
        built_in(
            batch, "cronjobs", "CronJob", "cj",
            strategy=ObjectStrategy(
                batch, "CronJob", table=workload_tables.CRON_JOB, generation=True, status=True, check=cron_job
            ),
            categories=_ALL, subresources=("status",),
        ),
        _autoscaler(autoscaler.V2, autoscaler.from_stored, storage_version=True),
        _autoscaler(autoscaler.V1, autoscaler.from_stored_to_version_1, storage_version=False),
    ]  # fmt: skip


def _autoscaler(api_version: str, from_stored: Callable[[Document], Document], *, storage_version: bool) -> Resource:
    resource = built_in(
        api_version, "horizontalpodautoscalers", autoscaler.KIND, "hpa",
        strategy=autoscaler.AutoscalerStrategy(api_version),
        categories=_ALL, subresources=("status",), storage_version=storage_version,
    )  # fmt: skip
    to_stored = None if storage_version else autoscaler.to_version_2
    return replace(resource, from_stored=from_stored, to_stored=to_stored)


def _policy_and_coordination() -> list[Resource]:
    policy, events = "policy/v1", "events.k8s.io/v1"
    return [
        built_in(
            policy, "poddisruptionbudgets", "PodDisruptionBudget", "pdb",
            strategy=DisruptionBudgetStrategy(), subresources=("status",),
        ),
        built_in(
            "scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", "pc",
            strategy=PriorityClassStrategy(), namespaced=False,
        ),
        built_in(
            "coordination.k8s.io/v1", "leases", "Lease",
            strategy=ObjectStrategy("coordination.k8s.io/v1", "Lease", table=tables.LEASE, check=checked(_LEASE)),
        ),
        replace(
            built_in(
                events, "events", "Event", "ev", storage_version=False,
                strategy=ObjectStrategy(
                    events, "Event", table=EVENT_TABLE, field_labels=event_field_labels(events), check=check_event
                ),
            ),
            storage_group="", to_stored=to_core, from_stored=to_events_group,
        ),
        built_in(
            "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", "crd", "crds",
            strategy=CustomResourceDefinitionStrategy(), namespaced=False,
            categories=_EXTENSIONS, subresources=("status",),
        ),
    ]  # fmt: skip


def _storage_and_devices() -> list[Resource]:
    storage, devices = "storage.k8s.io/v1", "resource.k8s.io/v1"
    classes = ObjectStrategy(
        storage, "StorageClass", namespaced=False, table=tables.STORAGE_CLASS, check=storage_rules.storage_class
    )
    csi_nodes = ObjectStrategy(
        storage, "CSINode", namespaced=False, table=tables.CSI_NODE, check=storage_rules.csi_node
    )
    drivers = ObjectStrategy(storage, "CSIDriver", namespaced=False, check=storage_rules.csi_driver)
    capacities = ObjectStrategy(storage, "CSIStorageCapacity", check=storage_rules.csi_storage_capacity)
    attachments = ObjectStrategy(
        storage, "VolumeAttachment", namespaced=False, status=True, check=storage_rules.volume_attachment
    )
    device_classes = ObjectStrategy(
        devices,
        "DeviceClass",
        namespaced=False,
        generation=True,
        table=tables.DEVICE_CLASS,
        name_check=subdomain_in_bytes,
    )
    resource_claims = ObjectStrategy(
        devices, "ResourceClaim", status=True, table=tables.RESOURCE_CLAIM, check=device_rules.resource_claim
    )
    claim_templates = ObjectStrategy(
        devices, "ResourceClaimTemplate", table=tables.DEVICE_CLASS, check=device_rules.resource_claim_template
    )
    resource_slices = ObjectStrategy(
        devices,
        "ResourceSlice",
        namespaced=False,
        generation=True,
        table=tables.RESOURCE_SLICE,
        check=device_rules.resource_slice,
        field_labels={
            "spec.nodeName": lambda obj: obj["spec"].get("nodeName") or "",
            "spec.driver": lambda obj: obj["spec"].get("driver") or "",
        },
    )
    return [
        built_in(storage, "storageclasses", "StorageClass", "sc", strategy=classes, namespaced=False),
        built_in(storage, "csinodes", "CSINode", strategy=csi_nodes, namespaced=False),
        built_in(storage, "csidrivers", "CSIDriver", strategy=drivers, namespaced=False),
        built_in(storage, "csistoragecapacities", "CSIStorageCapacity", strategy=capacities),
        built_in(
            storage,
            "volumeattachments",
            "VolumeAttachment",
            strategy=attachments,
            namespaced=False,
            subresources=("status",),
        ),
        built_in(devices, "deviceclasses", "DeviceClass", strategy=device_classes, namespaced=False),
        built_in(devices, "resourceclaims", "ResourceClaim", strategy=resource_claims, subresources=("status",)),
        built_in(devices, "resourceclaimtemplates", "ResourceClaimTemplate", strategy=claim_templates),
        built_in(devices, "resourceslices", "ResourceSlice", strategy=resource_slices, namespaced=False),
    ]


BUILTIN_RESOURCES: Final[tuple[Resource, ...]] = (
    *_core(),
    *_workloads(),
    *_policy_and_coordination(),
    *_storage_and_devices(),
    *access_and_network(),
    *extensions(),
    *flow_control_kinds(),
)
