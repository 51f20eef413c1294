"""The built-in kinds that say who may do what, how requests travel, and what extends the server itself."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.names import path_segment
from koordinator.cluster.builtin_resource import built_in
from koordinator.cluster.resource import Resource, View
from koordinator.cluster.strategy import (
    address_kinds,
    class_rules,
    extension_kinds,
    flow_control,
    network_rules,
    tables,
    traffic_rules,
)
from koordinator.cluster.strategy.access_rules import binding, role
from koordinator.cluster.strategy.admission_policy import AdmissionPolicyBindingStrategy, AdmissionPolicyStrategy
from koordinator.cluster.strategy.certificate_request import CertificateRequestStrategy
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.table import NAME_AND_AGE, Table
from koordinator.cluster.strategy.webhook_configuration import WebhookConfigurationStrategy

_EXTENSIONS: Final = ("api-extensions",)


def access_and_network() -> list[Resource]:
    slices = "discovery.k8s.io/v1"
    rbac, admission, network = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1", "networking.k8s.io/v1"
    return [
        *(
            built_in(
                admission, f"{kind.lower()}s", kind, namespaced=False,
                strategy=WebhookConfigurationStrategy(kind), categories=_EXTENSIONS,
            )
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        ),
        *(
            built_in(
                rbac, f"{kind.lower()}s", kind, namespaced=not kind.startswith("Cluster"),
                strategy=ObjectStrategy(
                    rbac, kind, namespaced=not kind.startswith("Cluster"), name_check=path_segment,
                    table=tables.ROLE_BINDING if kind.endswith("Binding") else NAME_AND_AGE,
                    check=(binding if kind.endswith("Binding") else role)(namespaced=not kind.startswith("Cluster")),
                ),
            )
            for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
        ),
        built_in(
            slices, "endpointslices", "EndpointSlice",
            strategy=ObjectStrategy(
                slices, "EndpointSlice", table=tables.ENDPOINT_SLICE, generation=True,
                check=network_rules.endpoint_slice,
            ),
        ),
        built_in(
            network, "ingresses", "Ingress", "ing",
            strategy=traffic_rules.IngressStrategy(tables.INGRESS), subresources=("status",),
        ),
        built_in(
            network, "networkpolicies", "NetworkPolicy", "netpol",
            strategy=ObjectStrategy(
                network, "NetworkPolicy", table=tables.NETWORK_POLICY, generation=True,
                check=traffic_rules.network_policy,
            ),
        ),
    ]  # fmt: skip


def extensions() -> list[Resource]:
    admission, network = "admissionregistration.k8s.io/v1", "networking.k8s.io/v1"
    policy, binding = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
    certificates = CertificateRequestStrategy()
    return [
        built_in(
            admission, "validatingadmissionpolicies", policy, namespaced=False,
            strategy=AdmissionPolicyStrategy(),
            categories=_EXTENSIONS, subresources=("status",),
        ),
        built_in(
            admission, "validatingadmissionpolicybindings", binding, namespaced=False,
            strategy=AdmissionPolicyBindingStrategy(),
            categories=_EXTENSIONS,
        ),
        built_in(
            "apiregistration.k8s.io/v1", "apiservices", "APIService", namespaced=False,
            strategy=extension_kinds.ApiServiceStrategy(), categories=_EXTENSIONS, subresources=("status",),
        ),
        built_in(
            "certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest", "csr",
            strategy=certificates, namespaced=False, subresources=("status",),
            views={"approval": View(certificates.approve)},
        ),
        built_in(
            network, "ingressclasses", "IngressClass", namespaced=False,
            strategy=_cluster_wide(
                network, "IngressClass", extension_kinds.INGRESS_CLASS, check=class_rules.ingress_class
            ),
        ),
        built_in(
            network, "ipaddresses", "IPAddress", "ip", namespaced=False,
            strategy=ObjectStrategy(
                network, "IPAddress", namespaced=False, table=address_kinds.IP_ADDRESS,
                check=address_kinds.ip_address, name_check=address_kinds.address_name,
            ),
        ),
        built_in(
            network, "servicecidrs", "ServiceCIDR", namespaced=False, subresources=("status",),
            strategy=ObjectStrategy(
                network, "ServiceCIDR", namespaced=False, status=True, table=address_kinds.SERVICE_CIDR,
                check=address_kinds.service_cidr,
            ),
        ),
        built_in(
            "node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False,
            strategy=ObjectStrategy(
                "node.k8s.io/v1", "RuntimeClass", namespaced=False, table=extension_kinds.RUNTIME_CLASS,
                check=class_rules.runtime_class,
            ),
        ),
        built_in(
            "storage.k8s.io/v1", "volumeattributesclasses", "VolumeAttributesClass", "vac", namespaced=False,
            strategy=ObjectStrategy(
                "storage.k8s.io/v1", "VolumeAttributesClass", namespaced=False,
                table=extension_kinds.VOLUME_ATTRIBUTES_CLASS, check=class_rules.volume_attributes_class,
            ),
        ),
    ]  # fmt: skip


def flow_control_kinds() -> list[Resource]:
    group = "flowcontrol.apiserver.k8s.io/v1"
    kinds = (
        ("flowschemas", "FlowSchema", flow_control.FLOW_SCHEMA, flow_control.flow_schema),
        (
            "prioritylevelconfigurations", "PriorityLevelConfiguration",
            flow_control.PRIORITY_LEVEL, flow_control.priority_level,
        ),
    )  # fmt: skip
    return [
        built_in(
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
