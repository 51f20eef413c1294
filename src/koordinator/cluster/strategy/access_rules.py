"""What roles and role bindings must say."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import dns_subdomain, path_segment
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, not_supported, required
from koordinator.cluster.strategy.metadata import validate_label_selector
from koordinator.cluster.strategy.rules import Check, Rules, one_of, required_name

_GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


def role(*, namespaced: bool) -> Check:
    """Of a Role, or of a ClusterRole, which may also speak of paths that are no resources."""

    def check(obj: Document, old: Document | None) -> list[Cause]:
        causes = [] if namespaced else _aggregation(obj.get("aggregationRule"))
        for index, rule in enumerate(obj.get("rules") or ()):
            causes += _policy(rule, f"rules[{index}]", namespaced=namespaced)
        return causes

    return check


def _policy(rule: Document, field: str, *, namespaced: bool) -> list[Cause]:
    causes = [] if rule.get("verbs") else [required(f"{field}.verbs", "verbs must contain at least one value")]
    if paths := rule.get("nonResourceURLs"):
        at = f"{field}.nonResourceURLs"
        if namespaced:
            causes.append(invalid(at, paths, "namespaced rules cannot apply to non-resource URLs"))
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            causes.append(invalid(at, paths, "rules cannot apply to both regular resources and non-resource URLs"))
        return causes
    if not rule.get("apiGroups"):
        causes.append(required(f"{field}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        causes.append(required(f"{field}.resources", "resource rules must supply at least one resource"))
    return causes


def _aggregation(rule: Document | None) -> list[Cause]:
    field = "aggregationRule.clusterRoleSelectors"
    if rule is None:
        return []
    if not rule.get("clusterRoleSelectors"):
        return [required(field, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    causes: list[Cause] = []
    for index, selector in enumerate(rule["clusterRoleSelectors"]):
        wrong = validate_label_selector(selector, f"{field}[{index}]")
        causes += wrong
        if wrong:
            causes.append(invalid(f"{field}[{index}]", None, "invalid label selector."))
    return causes


def binding(*, namespaced: bool) -> Check:
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    references = Rules(
        ("roleRef.apiGroup", one_of(_GROUP)),
        ("roleRef.kind", one_of(*kinds)),
        ("roleRef.name", required_name(path_segment)),
    )

    def check(obj: Document, old: Document | None) -> list[Cause]:
        causes = references.check(obj)
        for index, subject in enumerate(obj.get("subjects") or ()):
            causes += _subject(subject, f"subjects[{index}]", namespaced=namespaced)
        if old is not None and not same(obj.get("roleRef"), old.get("roleRef")):
            causes.append(invalid("roleRef", obj.get("roleRef"), "cannot change roleRef"))
        return causes

    return check


def _subject(subject: Document, field: str, *, namespaced: bool) -> list[Cause]:
    name, kind, group = (subject.get(key) or "" for key in ("name", "kind", "apiGroup"))
    causes = [] if name else [required(f"{field}.name")]
    if kind == "ServiceAccount":
        causes += [invalid(f"{field}.name", name, detail) for detail in dns_subdomain(name)] if name else []
        causes += _group_of(group, "", field)
        if not namespaced and not subject.get("namespace"):
            causes.append(required(f"{field}.namespace"))
    elif kind in ("User", "Group"):
        causes += _group_of(group, _GROUP, field)
    else:
        causes.append(not_supported(f"{field}.kind", kind, _SUBJECTS))
    return causes


def _group_of(group: Any, wanted: str, field: str) -> list[Cause]:
    return [] if group == wanted else [not_supported(f"{field}.apiGroup", group, (wanted,))]
