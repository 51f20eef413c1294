"""What Services, their endpoints, Ingresses and NetworkPolicies must say."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import (
    dns_1035_label,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    port_name,
    wildcard_subdomain,
)
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.rules import (
    IMMUTABLE,
    Rules,
    between,
    choice,
    labels,
    name,
    name_or_empty,
    one_of,
    one_of_if_set,
    port,
    required_name,
    selector,
)

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def ip(value: Any, field: str) -> list[Cause]:
    return [] if _address(value or "") is not None else [invalid(field, value or "", _IP)]


def ip_if_set(value: Any, field: str) -> list[Cause]:
    return ip(value, field) if value else []


def _endpoint_ip(text: str, field: str) -> list[Cause]:
    """Of an endpoint. The real server refuses loopback addresses, too; here webhooks run on the machine itself, and an
    endpoint is how their Service finds them."""
    address = _address(text)
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
    return causes if old is None else causes + _kept_cluster_ip(spec, old["spec"])


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


def _cluster_ips(spec: Document) -> list[Cause]:
    addresses, families = spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    causes = [
        duplicate(f"spec.ipFamilies[{index}]", family)
        for index, family in enumerate(families)
        if family in families[:index]
    ]
    if "None" in addresses and addresses != ["None"]:
        causes.append(invalid("spec.clusterIPs", addresses, "'None' must be the first and only value"))
    for index, address in enumerate(addresses):
        if address not in ("None", ""):
            causes += ip(address, f"spec.clusterIPs[{index}]")
    return causes


def _kept_cluster_ip(spec: Document, before: Document) -> list[Cause]:
    given, old = spec.get("clusterIP"), before.get("clusterIP")
    if not old or given == old or "ExternalName" in (spec.get("type"), before.get("type")) or _cluster_ips(spec):
        return []
    return [invalid("spec.clusterIPs[0]", (spec.get("clusterIPs") or [given])[0] or "", "may not change once set")]


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
    address = _address(text)
    if address is None:
        return [invalid(field, text, _IP)]
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


# Ingresses.


_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")


def ingress(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    rules, backend = spec.get("rules") or [], spec.get("defaultBackend")
    causes = [] if rules or backend is not None else [
        invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified")
    ]  # fmt: skip
    for index, rule in enumerate(rules):
        causes += _ingress_rule(rule, f"spec.rules[{index}]")
    if backend is not None:
        causes += _backend(backend, "spec.defaultBackend")
    for index, tls in enumerate(spec.get("tls") or ()):
        for position, host in enumerate(tls.get("hosts") or ()):
            check = wildcard_subdomain if "*" in host else dns_subdomain
            causes += name_or_empty(check)(host, f"spec.tls[{index}].hosts[{position}]")
        causes += name(dns_subdomain)(tls.get("secretName"), f"spec.tls[{index}].secretName")
    of_class = spec.get("ingressClassName")
    return causes if of_class is None else causes + name_or_empty(dns_subdomain)(of_class, "spec.ingressClassName")


def _ingress_rule(rule: Document, field: str) -> list[Cause]:
    causes: list[Cause] = []
    if host := rule.get("host"):
        if _address(host) is not None:
            causes.append(invalid(f"{field}.host", host, "must be a DNS name, not an IP address"))
        check = wildcard_subdomain if "*" in host else dns_subdomain
        causes += name(check)(host, f"{field}.host")
    if rule.get("http") is None:
        return causes
    paths = rule["http"].get("paths") or []
    if not paths:
        causes.append(required(f"{field}.http.paths"))
    for index, path in enumerate(paths):
        at = f"{field}.http.paths[{index}]"
        causes += _ingress_path(path, at)
        if path.get("pathType") is not None:
            causes += _backend(path["backend"], f"{at}.backend")
    return causes


def _ingress_path(path: Document, field: str) -> list[Cause]:
    kind, text = path.get("pathType"), path.get("path") or ""
    if kind is None:
        return [required(f"{field}.pathType", "pathType must be specified")]
    if kind not in _PATH_TYPES:
        return [not_supported(f"{field}.pathType", kind, _PATH_TYPES)]
    absolute = [] if text.startswith("/") else [invalid(f"{field}.path", text, "must be an absolute path")]
    if kind == "ImplementationSpecific":
        return absolute if text else []
    causes = absolute
    if text:
        causes += [
            invalid(f"{field}.path", text, f"must not contain '{part}'") for part in _SEQUENCES if part in text
        ] + [invalid(f"{field}.path", text, f"cannot end with '{end}'") for end in ("/..", "/.") if text.endswith(end)]
    return causes


def _backend(backend: Document, field: str) -> list[Cause]:
    service_, resource = backend.get("service"), backend.get("resource")
    if service_ is None and resource is None:
        return [invalid(field, "", "resource or service backend is required")]
    if service_ is not None and resource is not None:
        return [invalid(field, "", "cannot set both resource and service backends")]
    if service_ is None:
        return []
    named, number = service_["port"].get("name") or "", service_["port"].get("number") or 0
    causes = required_name(dns_1035_label)(service_.get("name"), f"{field}.service.name")
    if named and number:
        return [*causes, invalid(field, "", "cannot set both port name & port number")]
    if named:
        return causes + name(port_name)(named, f"{field}.service.port.name")
    if number:
        return causes + port(number, f"{field}.service.port.number")
    return [*causes, required(field, "port name or number is required")]


# Network policies.


_POLICY_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")


def network_policy(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    causes = selector(spec.get("podSelector"), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            field = f"spec.{direction}[{index}]"
            for position, item in enumerate(rule.get("ports") or ()):
                causes += _policy_port(item, f"{field}.ports[{position}]")
            for position, peer in enumerate(rule.get(peers) or ()):
                causes += _peer(peer, f"{field}.{peers}[{position}]")
    types = spec.get("policyTypes") or []
    if len(types) > 2:
        return [*causes, invalid("spec.policyTypes", types, "may not specify more than two policyTypes")]
    return causes + [
        not_supported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress"))
        for index, kind in enumerate(types)
        if kind not in ("Ingress", "Egress")
    ]


def _policy_port(item: Document, field: str) -> list[Cause]:
    causes = one_of_if_set(*_POLICY_PROTOCOLS)(item.get("protocol"), f"{field}.protocol")
    number, end = item.get("port"), item.get("endPort")
    if number is None:
        return (
            causes if end is None else [*causes, required(f"{field}.port", "must be specified when `endPort` is set")]
        )
    causes += port_or_name(number, f"{field}.port")
    if end is None:
        return causes
    if isinstance(number, str):
        return [*causes, invalid(f"{field}.port", number, "must not be specified when `endPort` is set")]
    if end < number:
        # The real server shows the other one of the two.
        causes.append(invalid(f"{field}.endPort", number, "must be greater than or equal to `port`"))
    return causes + between(1, 65535)(end, f"{field}.endPort")


def _peer(peer: Document, field: str) -> list[Cause]:
    pods, namespaces, block = (peer.get(key) for key in ("podSelector", "namespaceSelector", "ipBlock"))
    causes: list[Cause] = []
    if pods is not None:
        causes += selector(pods, f"{field}.podSelector")
    if namespaces is not None:
        causes += selector(namespaces, f"{field}.namespaceSelector")
    if block is not None:
        causes += _ip_block(block, f"{field}.ipBlock")
    if pods is None and namespaces is None and block is None:
        causes.append(required(field, "must specify a peer"))
    elif block is not None and (pods is not None or namespaces is not None):
        causes.append(forbidden(field, "may not specify both ipBlock and another peer"))
    return causes


def _ip_block(block: Document, field: str) -> list[Cause]:
    cidr = block.get("cidr") or ""
    if not cidr:
        return [required(f"{field}.cidr")]
    network = _network(cidr)
    if network is None:
        return [invalid(f"{field}.cidr", cidr, _CIDR)]
    causes: list[Cause] = []
    for index, text in enumerate(block.get("except") or ()):
        part, at = _network(text or ""), f"{field}.except[{index}]"
        if part is None:
            causes.append(invalid(at, text, _CIDR))
        elif part.version != network.version or part.prefixlen <= network.prefixlen or not part.subnet_of(network):
            causes.append(invalid(at, text, "must be a strict subset of `cidr`"))
    return causes


def cidr(value: Any, field: str) -> list[Cause]:
    return [] if _network(value or "") is not None else [invalid(field, value or "", _CIDR)]


def _network(text: str) -> Any:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
