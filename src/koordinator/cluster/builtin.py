"""Every built-in kind that the embedded API serves, with the names that kubectl knows it by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import dns_label, path_segment, subdomain_in_bytes
from koordinator.cluster.resource import ALL_VERBS, Resource, ScalePaths, Strategy
from koordinator.cluster.strategy import (
    address_kinds,
    autoscaler,
    class_rules,
    device_rules,
    extension_kinds,
    flow_control,
    network_rules,
    storage_rules,
    tables,
    traffic_rules,
    workload_tables,
)
from koordinator.cluster.strategy.access_rules import binding, role
from koordinator.cluster.strategy.admission_policy import AdmissionPolicyBindingStrategy, AdmissionPolicyStrategy
from koordinator.cluster.strategy.certificate_request import CertificateRequestStrategy
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
from koordinator.cluster.strategy.priority_class import PriorityClassStrategy
from koordinator.cluster.strategy.quota_rules import LimitRangeStrategy, ResourceQuotaStrategy
from koordinator.cluster.strategy.rules import Rules, checked, not_negative, positive
from koordinator.cluster.strategy.secret import ConfigMapStrategy, SecretStrategy
from koordinator.cluster.strategy.service import ServiceStrategy
from koordinator.cluster.strategy.table import NAME_AND_AGE, Table, lookup
from koordinator.cluster.strategy.webhook_configuration import WebhookConfigurationStrategy
from koordinator.cluster.strategy.workload import DaemonSetStrategy, JobStrategy, WorkloadStrategy
from koordinator.cluster.strategy.workload_rules import controller_revision, pod_template, replication_controller

_ALL: Final = ("all",)
_EXTENSIONS: Final = ("api-extensions",)
_SCALED: Final = ("status", "scale")
_ONLY_WITH_REVISION: Final = frozenset(
    {
        "leases", "poddisruptionbudgets", "customresourcedefinitions", "csidrivers", "csinodes", "csistoragecapacities",
        "volumeattachments", "runtimeclasses", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
        "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
    }
)  # fmt: skip
"""Kinds whose update must name the resourceVersion that it was made from."""
_RETURNED_WHEN_DELETED: Final = frozenset(
    {
        "pods", "namespaces", "services", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims",
        "podtemplates", "resourcequotas", "storageclasses", "csidrivers", "csinodes", "volumeattachments",
        "volumeattributesclasses", "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices",
    }
)  # fmt: skip

_LEASE: Final = Rules(("spec.leaseDurationSeconds", positive), ("spec.leaseTransitions", not_negative))


def _resource(
    api_version: str,
    plural: str,
    kind: str,
    *short_names: str,
    strategy: Strategy | None = None,
    namespaced: bool = True,
    generation: bool = False,
    subresources: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    storage_version: bool = True,
    graceful_deletion: bool = False,
) -> Resource:
    group, _, version = api_version.rpartition("/")
    strategy = strategy or ObjectStrategy(
        api_version, kind, namespaced=namespaced, generation=generation, status="status" in subresources
    )
    return Resource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        strategy=strategy,
        singular=kind.lower(),
        short_names=short_names,
        categories=categories,
        subresources=subresources,
        scale=ScalePaths() if "scale" in subresources else None,
        storage_version=storage_version,
        graceful_deletion=graceful_deletion,
        verbs=tuple(verb for verb in ALL_VERBS if (plural, verb) != ("namespaces", "deletecollection")),
        returns_deleted=plural in _RETURNED_WHEN_DELETED,
        unconditional_update=plural not in _ONLY_WITH_REVISION,
    )


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
    status = ("status",)
    return [
        _resource(
            v1, "pods", "Pod", "po",
            strategy=PodStrategy(), categories=_ALL,
            subresources=("status", "binding", "eviction"), graceful_deletion=True,
        ),
        _resource(v1, "nodes", "Node", "no", strategy=NodeStrategy(), namespaced=False, subresources=status),
        _resource(
            v1, "namespaces", "Namespace", "ns",
            strategy=NamespaceStrategy(tables.NAMESPACE), namespaced=False, subresources=("status", "finalize"),
        ),
        _resource(
            v1, "services", "Service", "svc",
            strategy=ServiceStrategy(tables.SERVICE), categories=_ALL, subresources=status,
        ),
        _resource(
            v1, "endpoints", "Endpoints", "ep",
            strategy=ObjectStrategy(v1, "Endpoints", table=tables.ENDPOINTS, check=network_rules.endpoints),
        ),
        _resource(v1, "events", "Event", "ev", strategy=events),
        _resource(v1, "configmaps", "ConfigMap", "cm", strategy=ConfigMapStrategy()),
        _resource(v1, "secrets", "Secret", strategy=SecretStrategy()),
        _resource(
            v1, "persistentvolumes", "PersistentVolume", "pv", strategy=volumes, namespaced=False, subresources=status
        ),
        _resource(v1, "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", strategy=claims, subresources=status),
        _resource(v1, "serviceaccounts", "ServiceAccount", "sa", strategy=accounts, subresources=("token",)),
        _resource(
            v1, "replicationcontrollers", "ReplicationController", "rc",
            strategy=controllers, categories=_ALL, subresources=_SCALED,
        ),
        _resource(
            v1, "podtemplates", "PodTemplate",
            strategy=ObjectStrategy(v1, "PodTemplate", generation=True, check=pod_template),
        ),
        _resource(v1, "limitranges", "LimitRange", "limits", strategy=LimitRangeStrategy()),
        _resource(
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
        _resource(
            apps, "deployments", "Deployment", "deploy",
            strategy=WorkloadStrategy(apps, "Deployment", table=workload_tables.DEPLOYMENT),
            categories=_ALL, subresources=_SCALED,
        ),
        _resource(
            apps, "replicasets", "ReplicaSet", "rs", strategy=replica_sets, categories=_ALL, subresources=_SCALED
        ),
        _resource(
            apps, "daemonsets", "DaemonSet", "ds",
            strategy=DaemonSetStrategy(apps, "DaemonSet", table=workload_tables.DAEMON_SET),
            categories=_ALL, subresources=("status",),
        ),
        _resource(
            apps, "statefulsets", "StatefulSet", "sts",
            strategy=WorkloadStrategy(
                apps, "StatefulSet", table=workload_tables.STATEFUL_SET, name_check=dns_label
            ),
            categories=_ALL, subresources=_SCALED,
        ),
        _resource(
            apps, "controllerrevisions", "ControllerRevision",
            strategy=ObjectStrategy(
                apps, "ControllerRevision", table=workload_tables.CONTROLLER_REVISION, check=controller_revision
            ),
        ),
        _resource(
            batch, "jobs", "Job",
            strategy=JobStrategy(table=workload_tables.JOB, field_labels=succeeded),
            categories=_ALL, subresources=("status",),
        ),
        _resource(
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
    resource = _resource(
        api_version, "horizontalpodautoscalers", autoscaler.KIND, "hpa",
        strategy=autoscaler.AutoscalerStrategy(api_version),
        categories=_ALL, subresources=("status",), storage_version=storage_version,
    )  # fmt: skip
    to_stored = None if storage_version else autoscaler.to_version_2
    return replace(resource, from_stored=from_stored, to_stored=to_stored)


def _policy_and_coordination() -> list[Resource]:
    policy, events = "policy/v1", "events.k8s.io/v1"
    return [
        _resource(
            policy, "poddisruptionbudgets", "PodDisruptionBudget", "pdb",
            strategy=DisruptionBudgetStrategy(), subresources=("status",),
        ),
        _resource(
            "scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", "pc",
            strategy=PriorityClassStrategy(), namespaced=False,
        ),
        _resource(
            "coordination.k8s.io/v1", "leases", "Lease",
            strategy=ObjectStrategy("coordination.k8s.io/v1", "Lease", table=tables.LEASE, check=checked(_LEASE)),
        ),
        replace(
            _resource(
                events, "events", "Event", "ev", storage_version=False,
                strategy=ObjectStrategy(
                    events, "Event", table=EVENT_TABLE, field_labels=event_field_labels(events), check=check_event
                ),
            ),
            storage_group="", to_stored=to_core, from_stored=to_events_group,
        ),
        _resource(
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
    )
    return [
        _resource(storage, "storageclasses", "StorageClass", "sc", strategy=classes, namespaced=False),
        _resource(storage, "csinodes", "CSINode", strategy=csi_nodes, namespaced=False),
        _resource(storage, "csidrivers", "CSIDriver", strategy=drivers, namespaced=False),
        _resource(storage, "csistoragecapacities", "CSIStorageCapacity", strategy=capacities),
        _resource(
            storage,
            "volumeattachments",
            "VolumeAttachment",
            strategy=attachments,
            namespaced=False,
            subresources=("status",),
        ),
        _resource(devices, "deviceclasses", "DeviceClass", strategy=device_classes, namespaced=False),
        _resource(devices, "resourceclaims", "ResourceClaim", strategy=resource_claims, subresources=("status",)),
        _resource(devices, "resourceclaimtemplates", "ResourceClaimTemplate", strategy=claim_templates),
        _resource(devices, "resourceslices", "ResourceSlice", strategy=resource_slices, namespaced=False),
    ]


def _access_and_network() -> list[Resource]:
    slices = "discovery.k8s.io/v1"
    rbac, admission, network = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1", "networking.k8s.io/v1"
    return [
        *(
            _resource(
                admission, f"{kind.lower()}s", kind, namespaced=False,
                strategy=WebhookConfigurationStrategy(kind), categories=_EXTENSIONS,
            )
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        ),
        *(
            _resource(
                rbac, f"{kind.lower()}s", kind, namespaced=not kind.startswith("Cluster"),
                strategy=ObjectStrategy(
                    rbac, kind, namespaced=not kind.startswith("Cluster"), name_check=path_segment,
                    table=tables.ROLE_BINDING if kind.endswith("Binding") else NAME_AND_AGE,
                    check=(binding if kind.endswith("Binding") else role)(namespaced=not kind.startswith("Cluster")),
                ),
            )
            for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
        ),
        _resource(
            slices, "endpointslices", "EndpointSlice",
            strategy=ObjectStrategy(
                slices, "EndpointSlice", table=tables.ENDPOINT_SLICE, generation=True,
                check=network_rules.endpoint_slice,
            ),
        ),
        _resource(
            network, "ingresses", "Ingress", "ing",
            strategy=traffic_rules.IngressStrategy(tables.INGRESS), subresources=("status",),
        ),
        _resource(
            network, "networkpolicies", "NetworkPolicy", "netpol",
            strategy=ObjectStrategy(
                network, "NetworkPolicy", table=tables.NETWORK_POLICY, generation=True,
                check=traffic_rules.network_policy,
            ),
        ),
    ]  # fmt: skip


def _extensions() -> list[Resource]:
    admission, network = "admissionregistration.k8s.io/v1", "networking.k8s.io/v1"
    policy, binding = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
    return [
        _resource(
            admission, "validatingadmissionpolicies", policy, namespaced=False,
            strategy=AdmissionPolicyStrategy(),
            categories=_EXTENSIONS, subresources=("status",),
        ),
        _resource(
            admission, "validatingadmissionpolicybindings", binding, namespaced=False,
            strategy=AdmissionPolicyBindingStrategy(),
            categories=_EXTENSIONS,
        ),
        _resource(
            "apiregistration.k8s.io/v1", "apiservices", "APIService", namespaced=False,
            strategy=extension_kinds.ApiServiceStrategy(), categories=_EXTENSIONS, subresources=("status",),
        ),
        _resource(
            "certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest", "csr",
            strategy=CertificateRequestStrategy(), namespaced=False, subresources=("status", "approval"),
        ),
        _resource(
            network, "ingressclasses", "IngressClass", namespaced=False,
            strategy=_cluster_wide(
                network, "IngressClass", extension_kinds.INGRESS_CLASS, check=class_rules.ingress_class
            ),
        ),
        _resource(
            network, "ipaddresses", "IPAddress", "ip", namespaced=False,
            strategy=ObjectStrategy(
                network, "IPAddress", namespaced=False, table=address_kinds.IP_ADDRESS,
                check=address_kinds.ip_address, name_check=address_kinds.address_name,
            ),
        ),
        _resource(
            network, "servicecidrs", "ServiceCIDR", namespaced=False, subresources=("status",),
            strategy=ObjectStrategy(
                network, "ServiceCIDR", namespaced=False, status=True, table=address_kinds.SERVICE_CIDR,
                check=address_kinds.service_cidr,
            ),
        ),
        _resource(
            "node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False,
            strategy=ObjectStrategy(
                "node.k8s.io/v1", "RuntimeClass", namespaced=False, table=extension_kinds.RUNTIME_CLASS,
                check=class_rules.runtime_class,
            ),
        ),
        _resource(
            "storage.k8s.io/v1", "volumeattributesclasses", "VolumeAttributesClass", "vac", namespaced=False,
            strategy=ObjectStrategy(
                "storage.k8s.io/v1", "VolumeAttributesClass", namespaced=False,
                table=extension_kinds.VOLUME_ATTRIBUTES_CLASS, check=class_rules.volume_attributes_class,
            ),
        ),
    ]  # fmt: skip


def _flow_control() -> list[Resource]:
    group = "flowcontrol.apiserver.k8s.io/v1"
    kinds = (
        ("flowschemas", "FlowSchema", flow_control.FLOW_SCHEMA, flow_control.flow_schema),
        (
            "prioritylevelconfigurations", "PriorityLevelConfiguration",
            flow_control.PRIORITY_LEVEL, flow_control.priority_level,
        ),
    )  # fmt: skip
    return [
        _resource(
            group, plural, kind, namespaced=False, subresources=("status",),
            strategy=ObjectStrategy(
                group, kind, namespaced=False, generation=True, status=True, table=columns, check=check
            ),
        )
        for plural, kind, columns, check in kinds
    ]  # fmt: skip


def _cluster_wide(api_version: str, kind: str, table: Table, *, status: bool = False, **rules: Any) -> ObjectStrategy:
    """``rules``: the check of the kind, and that of its names."""
    return ObjectStrategy(api_version, kind, namespaced=False, generation=True, status=status, table=table, **rules)


BUILTIN_RESOURCES: Final[tuple[Resource, ...]] = (
    *_core(),
    *_workloads(),
    *_policy_and_coordination(),
    *_storage_and_devices(),
    *_access_and_network(),
    *_extensions(),
    *_flow_control(),
)
