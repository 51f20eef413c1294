"""What a pod spec must say beside its containers: names, security, DNS, affinity, spreading, volumes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import dns_label, dns_subdomain, label_key, search_domain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, go_quoted, invalid, required
from koordinator.cluster.strategy.container_rules import seccomp, user_or_group
from koordinator.cluster.strategy.field_reference import downward_fields, field_reference, resource_reference
from koordinator.cluster.strategy.metadata import validate_label_selector
from koordinator.cluster.strategy.network_rules import ip
from koordinator.cluster.strategy.rules import Rule, Rules, choice, name, name_or_empty, one_of_if_set
from koordinator.cluster.strategy.storage_rules import claim_spec, driver_name, host_path


def check_settings(spec: Document, field: str) -> list[Cause]:
    """Everything that most pods say nothing of."""
    causes: list[Cause] = []
    for member, check in _CHECKS.items():
        if (value := spec.get(member)) is not None:
            causes += check(value, f"{field}.{member}")
    if spec.get("dnsConfig") is not None or spec.get("dnsPolicy") == "None":
        causes += _dns(spec, f"{field}.dnsConfig")
    return causes


def _aliases(aliases: list[Document], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, alias in enumerate(aliases):
        causes += ip(alias.get("ip"), f"{field}[{index}].ip")
        for position, host in enumerate(alias.get("hostnames") or ()):
            at = f"{field}[{index}].hostnames[{position}]"
            causes += [invalid(at, host or "", text) for text in dns_subdomain(host or "")]
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


_CHECKS: Final[dict[str, Rule]] = {
    "hostname": name(dns_label),
    "subdomain": name(dns_label),
    "runtimeClassName": name_or_empty(dns_subdomain),
    "preemptionPolicy": choice("PreemptLowerPriority", "Never"),
    "securityContext": _security,
    "hostAliases": _aliases,
    "readinessGates": Rules(("[].conditionType", name_or_empty(label_key))).check,
}
USUAL: Final[dict[str, tuple[Any, ...]]] = {
    "securityContext": (None, {}),
    "preemptionPolicy": (None, "PreemptLowerPriority", "Never"),
    "dnsPolicy": (None, "ClusterFirst", "ClusterFirstWithHostNet", "Default"),
}
"""What ``check_settings`` has nothing against, of what all pods say."""
RARE: Final = frozenset({*_CHECKS, "dnsConfig"} - USUAL.keys())
"""What it looks at, of what most pods say nothing of."""


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


# Volumes.


_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
_MAX_MODE: Final = 0o777
_LEAST_SECONDS: Final = 600
SourceCheck = Callable[[Document, Document, str], list[Cause]]
"""From the source of a volume and the spec of its pod to what is wrong with the source."""


def check_volume(volume: Document, spec: Document, field: str) -> list[Cause]:
    """What is wrong with where a volume comes from."""
    causes: list[Cause] = []
    for source, check in _SOURCES.items():
        found = volume.get(source)
        if found is not None:
            causes += check(found, spec, f"{field}.{source}")
    return causes


def check_own_claims(pod: str, spec: Document, field: str) -> list[Cause]:
    """The claims that ephemeral volumes make are named after the pod, which may make their names too long."""
    return [
        invalid(f"{field}[{index}].name", volume["name"], f"PVC name {go_quoted(claimed)}: {detail}")
        for index, volume in enumerate(spec.get("volumes") or ())
        if pod and volume.get("name") and volume.get("ephemeral") is not None
        for claimed in (f"{pod}-{volume['name']}",)
        for detail in dns_subdomain(claimed)
    ]


def _mode(value: Any, field: str) -> list[Cause]:
    return [] if value is None or 0 <= value <= _MAX_MODE else [invalid(field, value, _MODE)]


def _keys(items: list[Document], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(items):
        at = f"{field}[{index}]"
        if not item.get("key"):
            causes.append(required(f"{at}.key"))
        causes += _relative(item.get("path") or "", f"{at}.path") + _mode(item.get("mode"), f"{at}.mode")
    return causes


def _relative(path: str, field: str) -> list[Cause]:
    if not path:
        return [required(field)]
    causes = []
    if path.startswith("/"):
        causes.append(invalid(field, path, "must be a relative path"))
    if ".." in path.split("/"):
        causes.append(invalid(field, path, "must not contain '..'"))
    elif path.startswith(".."):
        causes.append(invalid(field, path, "must not start with '..'"))
    return causes


def _of_object(key: str) -> SourceCheck:
    """A ConfigMap, or a Secret, whose name has another field."""

    def check(source: Document, spec: Document, field: str) -> list[Cause]:
        causes = [] if source.get(key) else [required(f"{field}.{key}")]
        return (
            causes
            + _mode(source.get("defaultMode"), f"{field}.defaultMode")
            + _keys(source.get("items") or [], f"{field}.items")
        )

    return check


def _projected(source: Document, spec: Document, field: str) -> list[Cause]:
    causes = _mode(source.get("defaultMode"), f"{field}.defaultMode")
    for index, projection in enumerate(source.get("sources") or ()):
        at = f"{field}.sources[{index}]"
        for key in ("secret", "configMap"):
            found = projection.get(key)
            if found is not None:
                causes += [] if found.get("name") else [required(f"{at}.{key}.name")]
                causes += _keys(found.get("items") or [], f"{at}.{key}.items")
        for position, item in enumerate((projection.get("downwardAPI") or {}).get("items") or ()):
            causes += _downward_file(item, f"{at}.downwardAPI.items[{position}]")
        if projection.get("serviceAccountToken") is not None:
            causes += _token(projection["serviceAccountToken"], spec, field, f"{at}.serviceAccountToken")
    return causes


def _token(token: Document, spec: Document, volume: str, field: str) -> list[Cause]:
    causes: list[Cause] = []
    seconds = token.get("expirationSeconds")
    at = f"{field}.expirationSeconds"
    if seconds is not None and seconds < _LEAST_SECONDS:
        causes.append(invalid(at, seconds, "may not specify a duration less than 10 minutes"))
    if seconds is not None and seconds > 1 << 32:
        causes.append(invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
    # The real server names the volume here, not the source.
    return causes + _relative(token.get("path") or "", f"{volume}.path")


def _downward(source: Document, spec: Document, field: str) -> list[Cause]:
    causes = _mode(source.get("defaultMode"), f"{field}.defaultMode")
    for item in source.get("items") or ():
        causes += _downward_file(item, field)
    return causes


def _downward_file(item: Document, field: str) -> list[Cause]:
    causes = _relative(item.get("path") or "", f"{field}.path")
    of_pod, of_resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if of_pod is not None:
        causes += field_reference(of_pod, f"{field}.fieldRef", downward_fields)
        if of_resource is not None:
            causes.append(
                invalid(field, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
            )
    elif of_resource is not None:
        causes += resource_reference(of_resource, f"{field}.resourceFieldRef", needs_container=True)
    else:
        causes.append(required(field, "one of fieldRef and resourceFieldRef is required"))
    return causes + _mode(item.get("mode"), f"{field}.mode")


def _claim(source: Document, spec: Document, field: str) -> list[Cause]:
    return [] if source.get("claimName") else [required(f"{field}.claimName")]


def _csi(source: Document, spec: Document, field: str) -> list[Cause]:
    causes = driver_name(source.get("driver"), f"{field}.driver")
    secret = source.get("nodePublishSecretRef")
    if secret is None:
        return causes
    if not secret.get("name"):
        return [*causes, required(f"{field}.nodePublishSecretRef.name")]
    return causes + name(dns_subdomain)(secret["name"], f"{field}.name")


def _ephemeral(source: Document, spec: Document, field: str) -> list[Cause]:
    template = source.get("volumeClaimTemplate")
    at = f"{field}.volumeClaimTemplate"
    return [required(at)] if template is None else claim_spec.check(template.get("spec") or {}, f"{at}.spec")


_SOURCES: Final[dict[str, SourceCheck]] = {
    "hostPath": lambda source, spec, field: host_path(source, field),
    "secret": _of_object("secretName"),
    "persistentVolumeClaim": _claim,
    "downwardAPI": _downward,
    "configMap": _of_object("name"),
    "projected": _projected,
    "csi": _csi,
    "ephemeral": _ephemeral,
}
