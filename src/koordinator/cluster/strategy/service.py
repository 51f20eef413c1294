"""Services: what their type brings with it, and what an update keeps of what they were given.

Addresses and ports themselves are given out when a Service is stored; see ``koordinator.cluster.service_addresses``.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_1035_label
from koordinator.cluster.resource import RequestContext
from koordinator.cluster.strategy.network_rules import service
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, default_each, defaults_of
from koordinator.cluster.strategy.table import Table

HEADLESS: Final = "None"
"""The cluster IP of a Service that has none."""
_AFFINITY_SECONDS: Final = 10_800
_OF_ROUTED: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")
"""Fields that an ExternalName does not have."""


@defaults_of("io.k8s.api.core.v1.ServiceSpec")
def _service(spec: Document) -> None:
    default_each(spec, "sessionAffinity", "None")
    default_each(spec, "type", "ClusterIP")
    if spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
    if is_routed(spec):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        default_each(spec, "externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


@defaults_of("io.k8s.api.core.v1.ServicePort")
def _service_port(port: Document) -> None:
    default_each(port, "protocol", "TCP")
    if not port.get("targetPort"):
        port["targetPort"] = port.get("port")


def is_routed(spec: Document) -> bool:
    """Whether it stands for pods, and not for a name elsewhere."""
    return spec.get("type") != "ExternalName"


def has_cluster_ip(spec: Document) -> bool:
    """Whether a Service like this has one."""
    return is_routed(spec) and spec.get("clusterIP") != HEADLESS


def has_node_ports(spec: Document) -> bool:
    """Whether each of its ports has one."""
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


def has_health_port(spec: Document) -> bool:
    """Whether a load balancer asks each node whether pods are on it."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


class ServiceStrategy(ObjectStrategy):
    def __init__(self, table: Table) -> None:
        labels = {
            "spec.clusterIP": lambda obj: obj["spec"].get("clusterIP") or "",
            "spec.type": lambda obj: obj["spec"].get("type") or "",
        }
        super().__init__(
            "v1", "Service", name_check=dns_1035_label, table=table, status=True, field_labels=labels, check=service
        )

    def initialize(self, obj: Document, context: RequestContext) -> None:
        spec = obj["spec"]
        if is_routed(spec) and spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        _set_families(spec)
        _warn(spec, context)

    def carry_over(self, obj: Document, old: Document, context: RequestContext) -> None:
        spec, before = obj["spec"], old["spec"]
        _keep_address(spec, before)
        _keep_node_ports(spec, before)
        _drop_unused(spec, before)
        if is_routed(spec) and is_routed(before):
            _take(spec, before, ("ipFamilies",))
            if spec.get("ipFamilyPolicy") is None and before.get("ipFamilyPolicy"):
                spec["ipFamilyPolicy"] = before["ipFamilyPolicy"]
        _set_families(spec)
        _warn(spec, context)


def _warn(spec: Document, context: RequestContext) -> None:
    if is_routed(spec) and spec.get("externalName"):
        context.warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')


def _take(spec: Document, before: Document, names: tuple[str, ...]) -> None:
    """What is not said stays as it was."""
    for name in names:
        if before.get(name):
            default_each(spec, name, before[name])


def _set_families(spec: Document) -> None:
    if not is_routed(spec):
        return
    # Nothing says where the endpoints of a headless Service without a selector are.
    is_anywhere = spec.get("clusterIP") == HEADLESS and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        spec["ipFamilyPolicy"] = "RequireDualStack" if is_anywhere else "SingleStack"
    is_dual = is_anywhere and spec["ipFamilyPolicy"] != "SingleStack"
    default_each(spec, "ipFamilies", ["IPv4", "IPv6"] if is_dual else ["IPv4"])


def _keep_address(spec: Document, before: Document) -> None:
    """Who writes a Service without its address keeps it. Whoever knows one of the two fields with the address changes
    that one, and the other one follows."""
    follows = spec.get("clusterIPs") in (None, [], before.get("clusterIPs"))
    if not is_routed(spec) or not follows:
        return
    if spec.get("clusterIP") in (None, "", before.get("clusterIP")):
        _take(spec, before, ("clusterIP", "clusterIPs"))
    else:
        spec["clusterIPs"] = [spec["clusterIP"]]


def _keep_node_ports(spec: Document, before: Document) -> None:
    """Who writes a Service without its node ports keeps them."""
    if has_node_ports(spec) and has_node_ports(before):
        ports, given = spec.get("ports") or [], before.get("ports") or []
        used = {port.get("nodePort") for port in ports}
        known = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in given}
        for port in ports:
            number = known.get((port.get("protocol"), port.get("port")))
            if not port.get("nodePort") and number and number not in used:
                port["nodePort"] = number
    if has_health_port(spec) and has_health_port(before) and before.get("healthCheckNodePort"):
        default_each(spec, "healthCheckNodePort", before["healthCheckNodePort"])


def _drop_unused(spec: Document, before: Document) -> None:
    """What the type had before and has no longer goes, unless the client has changed it, too."""
    if is_routed(before) and not is_routed(spec):
        _drop(spec, before, _OF_ROUTED)
    if has_node_ports(before) and not has_node_ports(spec):
        numbers = [[port.get("nodePort") for port in each.get("ports") or ()] for each in (spec, before)]
        for port in (spec.get("ports") or ()) if numbers[0] == numbers[1] else ():
            port.pop("nodePort", None)
    if has_health_port(before) and not has_health_port(spec):
        _drop(spec, before, ("healthCheckNodePort",))
    is_external, was_external = (each.get("type") in ("NodePort", "LoadBalancer") for each in (spec, before))
    if was_external and not is_external:
        _drop(spec, before, ("externalTrafficPolicy",))
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        _drop(spec, before, ("allocateLoadBalancerNodePorts", "loadBalancerClass"))


def _drop(spec: Document, before: Document, names: tuple[str, ...]) -> None:
    for name in names:
        if spec.get(name) == before.get(name):
            spec.pop(name, None)
