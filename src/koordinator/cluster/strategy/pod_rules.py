"""What a pod spec must say beside its containers and volumes: names, security, DNS, affinity, spreading."""

from __future__ import annotations

import re
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import dns_label, dns_subdomain, label_key, search_domain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, required
from koordinator.cluster.strategy.container_rules import seccomp, user_or_group
from koordinator.cluster.strategy.metadata import validate_label_selector
from koordinator.cluster.strategy.network_rules import ip
from koordinator.cluster.strategy.rules import Rules, choice, name, name_or_empty, one_of_if_set

_SPEC: Final = Rules(
    ("hostname", name(dns_label)),
    ("subdomain", name(dns_label)),
    ("runtimeClassName", lambda value, field: name_or_empty(dns_subdomain)(value, field) if value is not None else []),
)
_PREEMPTION: Final = choice("PreemptLowerPriority", "Never")


def check_settings(spec: Document, field: str) -> list[Cause]:
    """Everything that most pods say nothing of."""
    causes = _SPEC.check(spec, field)
    if "preemptionPolicy" in spec:
        causes += _PREEMPTION(spec["preemptionPolicy"], f"{field}.preemptionPolicy")
    if spec.get("securityContext"):
        causes += _security(spec["securityContext"], f"{field}.securityContext")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at = f"{field}.hostAliases[{index}]"
        causes += ip(alias.get("ip"), f"{at}.ip")
        for position, host in enumerate(alias.get("hostnames") or ()):
            causes += [invalid(f"{at}.hostnames[{position}]", host or "", text) for text in dns_subdomain(host or "")]
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        causes += [invalid(f"{field}.readinessGates[{index}].conditionType", kind, text) for text in label_key(kind)]
    if spec.get("dnsConfig") is not None or spec.get("dnsPolicy") == "None":
        causes += _dns(spec, f"{field}.dnsConfig")
    return causes


# Security.


_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_PATTERN: Final = re.compile(_SYSCTL)
_SYSCTL_LIMIT: Final = 253
_SECURITY: Final = Rules(
    ("runAsUser", user_or_group),
    ("runAsGroup", user_or_group),
    ("fsGroup", user_or_group),
    ("supplementalGroups[]", user_or_group),
    ("fsGroupChangePolicy", one_of_if_set("Always", "OnRootMismatch")),
    ("seccompProfile", seccomp),
)


def _security(context: Document, field: str) -> list[Cause]:
    causes = _SECURITY.check(context, field)
    seen: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        at, text = f"{field}.sysctls[{index}].name", sysctl.get("name") or ""
        if not text:
            causes.append(required(at))
        elif len(text) > _SYSCTL_LIMIT or not _SYSCTL_PATTERN.fullmatch(text):
            detail = f"must have at most {_SYSCTL_LIMIT} characters and match regex ^{_SYSCTL}$"
            causes.append(invalid(at, text, detail))
        elif text in seen:
            causes.append(duplicate(at, text))
        seen.add(text)
    return causes


# DNS.


def _dns(spec: Document, field: str) -> list[Cause]:
    config, own = spec.get("dnsConfig"), spec.get("dnsPolicy") == "None"
    if config is None:
        return [required(field, "must provide `dnsConfig` when `dnsPolicy` is None")]
    servers = config.get("nameservers") or ()
    causes: list[Cause] = []
    if own and not servers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        causes.append(required(f"{field}.nameservers", detail))
    for index, server in enumerate(servers):
        causes += ip(server, f"{field}.nameservers[{index}]")
    for index, search in enumerate(config.get("searches") or ()):
        domain = (search or "").removesuffix(".")
        if search == ".":
            continue
        causes += [invalid(f"{field}.searches[{index}]", search or "", text) for text in search_domain(domain)]
    causes += [
        required(f"{field}.options[{index}]", "must not be empty")
        for index, option in enumerate(config.get("options") or ())
        if not option.get("name")
    ]
    return causes


# Affinity to other pods, and spreading.


def check_pod_affinity(affinity: Document, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, term in enumerate(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
        causes += _affinity_term(term, f"{field}.requiredDuringSchedulingIgnoredDuringExecution[{index}]")
    for index, preferred in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        at, weight = f"{field}.preferredDuringSchedulingIgnoredDuringExecution[{index}]", preferred.get("weight") or 0
        if not 1 <= weight <= 100:
            causes.append(invalid(f"{at}.weight", weight, "must be in the range 1-100"))
        causes += _affinity_term(preferred.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")
    return causes


def _affinity_term(term: Document, field: str) -> list[Cause]:
    causes = validate_label_selector(term.get("labelSelector") or {}, f"{field}.labelSelector")
    causes += validate_label_selector(term.get("namespaceSelector") or {}, f"{field}.namespaceSelector")
    for namespace in term.get("namespaces") or ():
        causes += [invalid(f"{field}.namespace", namespace or "", text) for text in dns_label(namespace or "")]
    key = term.get("topologyKey") or ""
    causes += [] if key else [required(f"{field}.topologyKey", "can not be empty")]
    return causes + [invalid(f"{field}.topologyKey", key, text) for text in label_key(key)]


def check_spread_details(constraint: Document, field: str, others: list[Document]) -> list[Cause]:
    """``others`` are the constraints after this one."""
    key, way = constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or ""
    causes: list[Cause] = []
    if any((other.get("topologyKey") or "", other.get("whenUnsatisfiable") or "") == (key, way) for other in others):
        shown = f"{{{key}, {way}}}"
        causes.append(duplicate(f"{field}.{{topologyKey, whenUnsatisfiable}}", shown))
    causes += _min_domains(constraint.get("minDomains"), way, f"{field}.minDomains")
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        causes += one_of_if_set("Honor", "Ignore")(constraint.get(policy), f"{field}.{policy}")
    labels = constraint.get("matchLabelKeys") or ()
    if labels and constraint.get("labelSelector") is None:
        causes.append(forbidden(f"{field}.matchLabelKeys", "must not be specified when labelSelector is not set"))
    for index, label in enumerate(labels):
        causes += [invalid(f"{field}.matchLabelKeys[{index}]", label or "", text) for text in label_key(label or "")]
    return causes + validate_label_selector(constraint.get("labelSelector") or {}, f"{field}.labelSelector")


def _min_domains(domains: Any, way: str, field: str) -> list[Cause]:
    if domains is None:
        return []
    causes = [] if domains > 0 else [invalid(field, domains, "must be greater than zero")]
    if way != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {way}"
        causes.append(invalid(field, domains, detail))
    return causes
