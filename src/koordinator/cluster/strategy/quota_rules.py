"""What ResourceQuotas and LimitRanges must say: names of resources, amounts that fit each other, scopes."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import label_key
from koordinator.api.quantity import Quantity
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, required
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.resource_names import (
    check_name_of_container,
    check_name_of_quota,
    check_resource_name,
    is_extended,
    is_standard,
)
from koordinator.cluster.strategy.rules import IMMUTABLE, NOT_NEGATIVE
from koordinator.cluster.strategy.table import Table

_COUNTS: Final = frozenset(
    {
        "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims",
        "configmaps", "services.nodeports", "services.loadbalancers",
    }
)  # fmt: skip


def _amount(name: str, text: str, field: str) -> list[Cause]:
    amount = Quantity.parse(text)
    causes = [invalid(field, text, NOT_NEGATIVE)] if amount.nanos < 0 else []
    whole = name in _COUNTS or is_extended(name)
    return [*causes, invalid(field, text, "must be an integer")] if whole and amount.milli % 1000 else causes


# Quotas.


_SCOPES: Final = (
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)  # fmt: skip
_OPPOSITES: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_OF_PODS: Final = frozenset(
    {"pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)  # fmt: skip
_OF_CLAIMS: Final = frozenset({"persistentvolumeclaims", "requests.storage"})
_UNCOUNTED: Final = "unsupported scope applied to resource"
_EXISTS_ALONE: Final = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity")
_ONLY_EXISTS: Final = (
    "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def resource_quota(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    causes = _amounts(spec.get("hard"), "spec.hard")
    causes += _scopes(spec) + _scope_selector(spec)
    if old is None:
        return causes
    before, now = set(old["spec"].get("scopes") or ()), set(spec.get("scopes") or ())
    return causes if before == now else [*causes, invalid("spec.scopes", spec.get("scopes"), IMMUTABLE)]


def _amounts(amounts: Document | None, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for name, text in (amounts or {}).items():
        at = f"{field}[{name}]"
        causes += check_name_of_quota(name, at) + _amount(name, text, at)
    return causes


class ResourceQuotaStrategy(ObjectStrategy):
    def __init__(self, table: Table) -> None:
        super().__init__("v1", "ResourceQuota", table=table, status=True, check=resource_quota)

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        causes = super().validate_status(obj, old)
        for group in ("hard", "used"):
            causes += _amounts(obj["status"].get(group), f"status.{group}")
        return causes


def _scopes(spec: Document) -> list[Cause]:
    scopes = spec.get("scopes") or []
    if not scopes:
        return []
    causes: list[Cause] = []
    for scope in scopes:
        causes += [] if scope in _SCOPES else [invalid("spec.scopes", scopes, "unsupported scope")]
        causes += [invalid("spec.scopes", scopes, _UNCOUNTED) for _ in _uncounted(scope, spec)]
    conflicts = [pair for pair in _OPPOSITES if set(pair) <= set(scopes)]
    return causes + [invalid("spec.scopes", scopes, "conflicting scopes") for _ in conflicts]


def _scope_selector(spec: Document) -> list[Cause]:
    # The real server leaves out the index.
    field = "spec.scopeSelector.matchExpressions"
    causes: list[Cause] = []
    names: list[str] = []
    for requirement in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        name, operator = requirement.get("scopeName") or "", requirement.get("operator") or ""
        values = requirement.get("values") or []
        names.append(name)
        if name not in _SCOPES:
            causes.append(invalid(f"{field}.scopeName", name, "unsupported scope"))
        causes += [invalid(field, spec["scopeSelector"], _UNCOUNTED) for _ in _uncounted(name, spec)]
        if name in _EXISTS_ALONE and operator != "Exists":
            causes.append(invalid(f"{field}.operator", operator, _ONLY_EXISTS))
        causes += _scope_values(operator, values, field)
    for pair in _OPPOSITES:
        if set(pair) <= set(names):
            causes.append(invalid("spec.scopeSelector", names, "conflicting scopes"))
    return causes


def _uncounted(scope: str, spec: Document) -> list[str]:
    """The resources of the quota that are known and that the scope does not count."""
    counted = {"BestEffort": frozenset({"pods"}), "VolumeAttributesClass": _OF_CLAIMS}.get(scope, _OF_PODS)
    standard = [n for n in sorted(spec.get("hard") or ()) if is_standard(n)]
    return [name for name in standard if name not in counted] if scope in _SCOPES else []


def _scope_values(operator: str, values: list[str], field: str) -> list[Cause]:
    if operator in ("In", "NotIn"):
        detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
        return [] if values else [required(f"{field}.values", detail)]
    if operator in ("Exists", "DoesNotExist"):
        detail = "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector"
        return [invalid(f"{field}.values", values, detail)] if values else []
    return [invalid(f"{field}.operator", operator, "not a valid selector operator")]


# Ranges of limits.


_LIMIT_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_AMOUNTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def limit_range(obj: Document, old: Document | None) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, limit in enumerate(obj["spec"].get("limits") or ()):
        field, kind = f"spec.limits[{index}]", limit.get("type") or ""
        causes += _limit_type(kind, f"{field}.type")
        if kind in seen:
            causes.append(duplicate(f"{field}.type", kind))
        seen.add(kind)
        causes += _limit(limit, kind, field)
    return causes


def _limit_type(kind: str, field: str) -> list[Cause]:
    if wrong := label_key(kind):
        return [invalid(field, kind, detail) for detail in wrong]
    known = "/" in kind or kind in _LIMIT_TYPES
    return [] if known else [invalid(field, kind, "must be a standard limit type or fully qualified")]


def _limit(limit: Document, kind: str, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for group in ("max", "min"):
        causes += _names(limit, kind, group, field)
    if kind == "Pod":
        causes += [
            forbidden(f"{field}.{group}", "may not be specified when `type` is 'Pod'")
            for group in ("default", "defaultRequest")
            if limit.get(group)
        ]
    else:
        causes += _names(limit, kind, "default", field) + _names(limit, kind, "defaultRequest", field)
    causes += _names(limit, kind, "maxLimitRequestRatio", field)
    if kind == "PersistentVolumeClaim" and not any("storage" in (limit.get(group) or {}) for group in ("min", "max")):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        causes.append(required(f"{field}.limits", detail))
    names = sorted({name for group in _AMOUNTS for name in limit.get(group) or ()})
    return causes + [
        cause for name in names for cause in _order({g: _of(limit, g, name) for g in _AMOUNTS}, name, field)
    ]


def _names(limit: Document, kind: str, group: str, field: str) -> list[Cause]:
    check = check_name_of_container if kind in ("Container", "Pod") else check_resource_name
    return [cause for name in limit.get(group) or () for cause in check(name, f"{field}.{group}[{name}]")]


class LimitRangeStrategy(ObjectStrategy):
    """A range without a name is named by its uid."""

    def __init__(self) -> None:
        super().__init__("v1", "LimitRange", check=limit_range)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        metadata = obj["metadata"]
        if not metadata.get("name"):
            metadata["name"] = metadata.get("uid") or ""


def _of(limit: Document, group: str, name: str) -> Quantity | None:
    text = (limit.get(group) or {}).get(name)
    return None if text is None else Quantity.parse(text)


_SHOWN: Final = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}


def _order(amounts: dict[str, Quantity | None], name: str, field: str) -> list[Cause]:
    """Each amount must be no greater than the next."""
    causes: list[Cause] = []
    # Which field is to blame, and which amount is shown for it.
    pairs = (
        ("min", "max", "min", "min"),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
        ("min", "default", "default", "min"),
        ("default", "max", "default", "max"),
    )
    for low, high, blamed, shown in pairs:
        smaller, larger = amounts[low], amounts[high]
        if smaller is not None and larger is not None and larger < smaller:
            of = "default limit" if (low, high) == ("defaultRequest", "default") else _SHOWN[high]
            detail = f"{_SHOWN[low]} value {smaller} is greater than {of} value {larger}"
            causes.append(invalid(f"{field}.{blamed}[{name}]", str(amounts[shown]), detail))
    return causes + _ratio(amounts, f"{field}.maxLimitRequestRatio[{name}]")


def _ratio(amounts: dict[str, Any], field: str) -> list[Cause]:
    ratio, least, most = amounts["maxLimitRequestRatio"], amounts["min"], amounts["max"]
    if ratio is None:
        return []
    causes = [invalid(field, str(ratio), f"ratio {ratio} is less than 1")] if ratio.nanos < 10**9 else []
    if least is not None and most is not None and least.nanos:
        widest = most.nanos / least.nanos
        if ratio.nanos / 10**9 > widest:
            causes.append(invalid(field, str(ratio), f"ratio {ratio} is greater than max/min = {widest:f}"))
    return causes
