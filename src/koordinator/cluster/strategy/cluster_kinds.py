"""Small kinds around the workloads: namespaces, services, policies, roles."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_1035_label, dns_label
from koordinator.cluster.resource import RequestContext
from koordinator.cluster.strategy.defaults import default_each, defaults_of
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.table import Table

_CORE: Final = "io.k8s.api.core.v1."
_RBAC: Final = "io.k8s.api.rbac.v1."
_NETWORKING: Final = "io.k8s.api.networking.v1."
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
RBAC_GROUP: Final = "rbac.authorization.k8s.io"


@defaults_of(f"{_CORE}Namespace")
def _namespace(namespace: Document) -> None:
    default_each(namespace["status"], "phase", "Active")
    if name := namespace["metadata"].get("name"):
        namespace["metadata"].setdefault("labels", {})[NAMESPACE_LABEL] = name


@defaults_of(f"{_CORE}ServiceSpec")
def _service(spec: Document) -> None:
    default_each(spec, "sessionAffinity", "None")
    default_each(spec, "type", "ClusterIP")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        default_each(spec, "externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


@defaults_of(f"{_CORE}ServicePort")
def _service_port(port: Document) -> None:
    default_each(port, "protocol", "TCP")
    if not port.get("targetPort"):
        port["targetPort"] = port.get("port")


@defaults_of(f"{_CORE}EndpointPort")
def _endpoint_port(port: Document) -> None:
    default_each(port, "protocol", "TCP")


@defaults_of("io.k8s.api.discovery.v1.EndpointPort")
def _slice_port(port: Document) -> None:
    port.setdefault("name", "")
    port.setdefault("protocol", "TCP")


@defaults_of(f"{_CORE}LimitRangeItem")
def _limit_range_item(item: Document) -> None:
    if item.get("type") != "Container":
        return
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    for name, amounts in (("default", limits), ("defaultRequest", requests)):
        if amounts:
            item[name] = amounts


@defaults_of(f"{_NETWORKING}NetworkPolicySpec")
def _network_policy(spec: Document) -> None:
    default_each(spec, "policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])


@defaults_of(f"{_NETWORKING}NetworkPolicyPort")
def _network_policy_port(port: Document) -> None:
    port.setdefault("protocol", "TCP")


@defaults_of(f"{_RBAC}RoleRef")
def _role_reference(reference: Document) -> None:
    default_each(reference, "apiGroup", RBAC_GROUP)


@defaults_of(f"{_RBAC}Subject")
def _subject(subject: Document) -> None:
    if subject.get("kind") in ("User", "Group"):
        default_each(subject, "apiGroup", RBAC_GROUP)


class NamespaceStrategy(ObjectStrategy):
    """Namespaces hold themselves until they are empty: ``spec.finalizers`` goes last."""

    def __init__(self, table: Table) -> None:
        labels = {"status.phase": lambda obj: obj["status"].get("phase") or ""}
        super().__init__(
            "v1", "Namespace", namespaced=False, name_check=dns_label, table=table, status=True, field_labels=labels
        )

    def initialize(self, obj: Document, context: RequestContext) -> None:
        obj["spec"]["finalizers"] = ["kubernetes"]

    def admit_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        obj["spec"]["finalizers"] = list(old["spec"].get("finalizers") or [])
        if not obj["spec"]["finalizers"]:
            del obj["spec"]["finalizers"]


class ServiceStrategy(ObjectStrategy):
    """Services without an address allocator: nothing in an embedded cluster routes to them."""

    def __init__(self, table: Table) -> None:
        labels = {
            "spec.clusterIP": lambda obj: obj["spec"].get("clusterIP") or "",
            "spec.type": lambda obj: obj["spec"].get("type") or "",
        }
        super().__init__("v1", "Service", name_check=dns_1035_label, table=table, status=True, field_labels=labels)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        spec = obj["spec"]
        if spec["type"] != "ExternalName":
            spec.setdefault("clusterIP", "None")
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
