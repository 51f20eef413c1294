"""What Ingresses and NetworkPolicies must say."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import (
    dns_1035_label,
    dns_subdomain,
    port_name,
    wildcard_subdomain,
)
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.network_rules import CIDR, port_or_name, read_address, read_block
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.rules import (
    between,
    name,
    name_or_empty,
    one_of_if_set,
    port,
    required_name,
    selector,
)
from koordinator.cluster.strategy.table import Table

# Ingresses.


OLD_INGRESS_CLASS: Final = "kubernetes.io/ingress.class"
_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")


class IngressStrategy(ObjectStrategy):
    def __init__(self, table: Table) -> None:
        super().__init__("networking.k8s.io/v1", "Ingress", table=table, generation=True, status=True, check=ingress)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        is_annotated = OLD_INGRESS_CLASS in (obj["metadata"].get("annotations") or {})
        if is_annotated and obj["spec"].get("ingressClassName") is None:
            context.warnings.append(
                f"annotation \"{OLD_INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
            )


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
    if of_class is None:
        return causes
    causes += name_or_empty(dns_subdomain)(of_class, "spec.ingressClassName")
    annotated = (obj["metadata"].get("annotations") or {}).get(OLD_INGRESS_CLASS, of_class)
    if old is None and annotated != of_class:
        detail = "must match `ingressClassName` when both are specified"
        causes.append(invalid(f"annotations.{OLD_INGRESS_CLASS}", annotated, detail))
    return causes


def _ingress_rule(rule: Document, field: str) -> list[Cause]:
    causes: list[Cause] = []
    if host := rule.get("host"):
        if read_address(host) is not None:
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
    if number is not None:
        causes += port_or_name(number, f"{field}.port")
    if end is None:
        return causes
    if not isinstance(number, int):
        why = "not specified" if number is None else "non-numeric"
        return [*causes, invalid(f"{field}.endPort", end, f"may not be specified when `port` is {why}")]
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
    network = read_block(cidr)
    if network is None:
        return [invalid(f"{field}.cidr", cidr, CIDR)]
    causes: list[Cause] = []
    for index, text in enumerate(block.get("except") or ()):
        part, at = read_block(text or ""), f"{field}.except[{index}]"
        if part is None:
            causes.append(invalid(at, text, CIDR))
        elif part.version != network.version or part.prefixlen <= network.prefixlen or not part.subnet_of(network):
            causes.append(invalid(at, text, "must be a strict subset of `cidr`"))
    return causes
