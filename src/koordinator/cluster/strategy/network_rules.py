"""What addresses and ports, Services and their endpoints must say."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import (
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    port_name,
)
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, required
from koordinator.cluster.strategy.rules import (
    IMMUTABLE,
    Rules,
    choice,
    labels,
    name,
    name_or_empty,
    one_of,
    one_of_if_set,
    port,
    required_name,
)

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def ip(value: Any, field: str) -> list[Cause]:
    return [] if read_address(value or "") is not None else [invalid(field, value or "", IP)]


def _endpoint_ip(text: str, field: str) -> list[Cause]:
    """Of an endpoint. The real server refuses loopback addresses, too; here webhooks run on the machine itself, and an
    endpoint is how their Service finds them."""
    address = read_address(text)
    if address is None:
        return [invalid(field, text, "must be a valid IP address")]
    special = (
        (address.is_unspecified, "may not be unspecified (0.0.0.0 or ::)"),
        (address.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            address in _LINK_LOCAL_MULTICAST[address.version],
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    )
    return [invalid(field, text, detail) for holds, detail in special if holds]


_LINK_LOCAL_MULTICAST: Final[dict[int, Any]] = {
    4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")
}  # fmt: skip


def port_or_name(value: Any, field: str) -> list[Cause]:
    """A number, or the name of a port of the pods."""
    return name_or_empty(port_name)(value, field) if isinstance(value, str) else port(value, field)


def qualified_name(value: Any, field: str) -> list[Cause]:
    """Of a protocol: ``example.com/http``, or a name of IANA's; an empty one is checked as any other."""
    return [invalid(field, value, detail) for detail in label_key(value)] if value is not None else []


# Services.


def _affinity_seconds(spec: Document) -> list[Cause]:
    field = "spec.sessionAffinityConfig"
    config = spec.get("sessionAffinityConfig")
    if spec.get("sessionAffinity") == "ClientIP":
        seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
        at = f"{field}.clientIP.timeoutSeconds"
        if seconds is None:
            return [required(at)]
        detail = "must be greater than 0 and less than 86400"
        return [] if 0 < seconds <= 86400 else [invalid(at, seconds, detail)]
    return []


_SERVICE: Final = Rules(
    ("spec.sessionAffinity", choice("ClientIP", "None")),
    ("spec.selector", labels),
    ("spec.type", choice("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")),
    ("spec.ipFamilies[]", one_of("IPv4", "IPv6")),
    ("spec.ipFamilyPolicy", one_of_if_set("PreferDualStack", "RequireDualStack", "SingleStack")),
    ("spec.internalTrafficPolicy", one_of_if_set("Cluster", "Local")),
    ("spec.externalTrafficPolicy", one_of_if_set("Cluster", "Local")),
    ("spec.externalIPs[]", ip),
)
_SERVICE_PORT: Final = Rules(
    ("port", port),
    ("protocol", choice(*_PROTOCOLS)),
    ("targetPort", port_or_name),
    ("appProtocol", qualified_name),
)


def service(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    causes: list[Cause] = []
    ports = spec.get("ports") or []
    external = spec.get("type") == "ExternalName"
    if not ports and spec.get("clusterIP") != "None" and not external:
        causes.append(required("spec.ports"))
    if external:
        causes += required_name(dns_subdomain)(spec.get("externalName"), "spec.externalName")
    causes += _service_ports(ports, external) + _SERVICE.check(obj) + _affinity_seconds(spec) + _cluster_ips(spec)
    causes += _type_rules(spec)
    if old is not None:
        causes += _kept_cluster_ip(spec, old["spec"]) + _kept_class(spec, old["spec"]) + _kept_health(spec, old["spec"])
    # What it is to be is looked at when all else is right.
    return causes or _families(spec)


def _service_ports(ports: list[Document], external: bool) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for index, item in enumerate(ports):
        field = f"spec.ports[{index}]"
        causes += _port_name(item.get("name") or "", f"{field}.name", names, needed=len(ports) > 1)
        causes += _SERVICE_PORT.check(item, field)
        number = (item.get("protocol"), item.get("port"))
        if number in numbers:
            causes.append(duplicate(field, item))
        numbers.add(number)
    return causes


def _port_name(text: str, field: str, seen: set[str], *, needed: bool) -> list[Cause]:
    causes = [required(field)] if needed and not text else []
    if text:
        causes += [invalid(field, text, detail) for detail in dns_label(text)]
        if text in seen:
            causes.append(duplicate(field, text))
        seen.add(text)
    return causes


_BALANCER: Final = "may only be used when `type` is 'LoadBalancer'"
_LOCAL: Final = ("LoadBalancer", "Local")
"""The type and the traffic policy of a Service with a port for health checks."""
_OF_BALANCERS: Final = {
    # The real server writes the first one like this.
    "loadBalancerSourceRanges": "LoadBalancerSourceRanges",
    "allocateLoadBalancerNodePorts": "allocateLoadBalancerNodePorts",
    "loadBalancerClass": "loadBalancerClass",
}


def _type_rules(spec: Document) -> list[Cause]:
    """Which addresses and ports go with which type."""
    kind, policy, health = spec.get("type"), spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort")
    is_external = kind in ("NodePort", "LoadBalancer")
    causes: list[Cause] = []
    if is_external and spec.get("clusterIP") == "None":
        causes.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ClusterIP":
        causes += [
            forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
            for index, item in enumerate(spec.get("ports") or ())
            if item.get("nodePort")
        ]
    if kind == "LoadBalancer":
        for index, block in enumerate(spec.get("loadBalancerSourceRanges") or ()):
            causes += cidr(block, f"spec.LoadBalancerSourceRanges[{index}]")
        causes += qualified_name(spec.get("loadBalancerClass"), "spec.loadBalancerClass")
    else:
        set_here = [shown for name, shown in _OF_BALANCERS.items() if spec.get(name) not in (None, [], "")]
        causes += [forbidden(f"spec.{shown}", _BALANCER) for shown in set_here]
    if policy and not is_external and not spec.get("externalIPs"):
        detail = "may only be set for externally-accessible services"
        causes.append(invalid("spec.externalTrafficPolicy", policy, detail))
    if health and (kind, policy) != _LOCAL:
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        causes.append(invalid("spec.healthCheckNodePort", health, detail))
    elif health:
        causes += port(health, "spec.healthCheckNodePort")
    return causes


def _families(spec: Document) -> list[Cause]:
    """This cluster has addresses of version 4 alone."""
    families, policy = spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy")
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        return []
    causes = [
        invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
        for index, family in enumerate(families)
        if family == "IPv6"
    ]
    if policy == "RequireDualStack":
        causes.append(invalid("spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services"))
    return causes


def _cluster_ips(spec: Document) -> list[Cause]:
    addresses, families = spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    causes = [
        duplicate(f"spec.ipFamilies[{index}]", family)
        for index, family in enumerate(families)
        if family in families[:index]
    ]
    versions = [read.version for text in addresses if (read := read_address(text or "")) is not None]
    if len(set(versions)) < len(versions):
        causes.append(invalid("spec.clusterIPs", addresses, "may specify no more than one IP for each IP family"))
    if "None" in addresses and addresses != ["None"]:
        causes.append(invalid("spec.clusterIPs", addresses, "'None' must be the first and only value"))
    if addresses and not spec.get("clusterIP"):
        causes.append(invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified"))
    elif addresses and addresses[0] != spec.get("clusterIP"):
        causes.append(invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    for index, address in enumerate(addresses):
        if address != "None":
            causes += ip(address, f"spec.clusterIPs[{index}]")
    return causes


def _kept_class(spec: Document, before: Document) -> list[Cause]:
    given = spec.get("loadBalancerClass")
    if spec.get("type") != "LoadBalancer" or before.get("type") != "LoadBalancer":
        return []
    is_kept = given == before.get("loadBalancerClass")
    return [] if is_kept else [invalid("spec.loadBalancerClass", given, "may not change once set")]


def _kept_health(spec: Document, before: Document) -> list[Cause]:
    (given, local), (old, was_local) = (
        (each.get("healthCheckNodePort"), (each.get("type"), each.get("externalTrafficPolicy")) == _LOCAL)
        for each in (spec, before)
    )
    is_kept = given == old or not (local and was_local)
    return [] if is_kept else [forbidden("spec.healthCheckNodePort", IMMUTABLE)]


def _kept_cluster_ip(spec: Document, before: Document) -> list[Cause]:
    given, old = spec.get("clusterIP"), before.get("clusterIP")
    if not old or given == old or "ExternalName" in (spec.get("type"), before.get("type")) or _cluster_ips(spec):
        return []
    return [invalid("spec.clusterIPs[0]", spec.get("clusterIPs") or [given or ""], "may not change once set")]


# Endpoints and endpoint slices.


_ENDPOINT: Final = Rules(
    ("ip", ip),
    ("hostname", name(dns_label)),
    ("nodeName", lambda value, field: name_or_empty(dns_subdomain)(value, field) if value is not None else []),
)
_ENDPOINT_PORT: Final = Rules(
    ("port", port), ("protocol", choice(*_PROTOCOLS)), ("appProtocol", qualified_name)
)  # fmt: skip


def endpoints(obj: Document, old: Document | None) -> list[Cause]:
    causes: list[Cause] = []
    for index, subset in enumerate(obj.get("subsets") or ()):
        field = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(required(field, "must specify `addresses` or `notReadyAddresses`"))
        for group in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(group) or ()):
                at = f"{field}.{group}[{position}]"
                causes += _ENDPOINT.check(address, at) + _endpoint_ip(address.get("ip") or "", f"{at}.ip")
        causes += _endpoint_ports(subset.get("ports") or [], f"{field}.ports")
    return causes


def _endpoint_ports(ports: list[Document], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(ports):
        named = item.get("name") or ""
        if not named and len(ports) > 1:
            causes.append(required(f"{field}[{index}].name"))
        causes += name(dns_label)(named, f"{field}[{index}].name") + _ENDPOINT_PORT.check(item, f"{field}[{index}]")
    return causes


_SLICE_ENDPOINT: Final = Rules(
    ("hostname", lambda value, field: name_or_empty(dns_label)(value, field) if value is not None else []),
    ("nodeName", lambda value, field: name_or_empty(dns_subdomain)(value, field) if value is not None else []),
)


def endpoint_slice(obj: Document, old: Document | None) -> list[Cause]:
    kind = obj.get("addressType") or ""
    causes = choice("FQDN", "IPv4", "IPv6")(kind, "addressType")
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        field = f"endpoints[{index}]"
        addresses = endpoint.get("addresses") or []
        if not addresses:
            causes.append(required(f"{field}.addresses", "must contain at least 1 address"))
        for position, text in enumerate(addresses):
            causes += _slice_address(text or "", kind, f"{field}.addresses[{position}]")
        causes += _SLICE_ENDPOINT.check(endpoint, field) + _zones(endpoint, f"{field}.hints.forZones")
    causes += _slice_ports(obj.get("ports") or [])
    if old is not None and kind != old.get("addressType"):
        causes.append(invalid("addressType", kind, IMMUTABLE))
    return causes


def _slice_address(text: str, kind: str, field: str) -> list[Cause]:
    if kind == "FQDN":
        return name_or_empty(dns_subdomain)(text, field)
    if kind not in ("IPv4", "IPv6"):
        return []
    address = read_address(text)
    if address is None:
        return [invalid(field, text, IP)]
    wrong = address.version != int(kind[-1])
    causes = [invalid(field, text, f"must be an {kind} address")] if wrong else []
    return causes + _endpoint_ip(text, field)


def _zones(endpoint: Document, field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, zone in enumerate((endpoint.get("hints") or {}).get("forZones") or ()):
        named = zone.get("name") or ""
        if named in seen:
            causes.append(duplicate(f"{field}[{index}].name", named))
        seen.add(named)
        causes += [invalid(f"{field}[{index}].name", named, detail) for detail in label_value(named)]
    return causes


def _slice_ports(ports: list[Document]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, item in enumerate(ports):
        named, field = item.get("name") or "", f"ports[{index}]"
        causes += name(dns_label)(named, f"{field}.name")
        if named in seen:
            causes.append(duplicate(f"{field}.name", named))
        seen.add(named)
        protocol = item.get("protocol")
        at = f"{field}.protocol"
        causes += [required(at)] if protocol is None else one_of(*_PROTOCOLS)(protocol, at)
        causes += qualified_name(item.get("appProtocol"), f"{field}.appProtocol")
    return causes


# Blocks of addresses.


def cidr(value: Any, field: str) -> list[Cause]:
    return [] if read_block(value or "") is not None else [invalid(field, value or "", CIDR)]


def read_block(text: str) -> Any:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
