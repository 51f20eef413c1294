"""What one object counts towards the quotas of its namespace, and which quotas count it; pure.

The names and rules are those of the real server's quota evaluators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.pod import Pod
from koordinator.api.quantity import Format, Quantity
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.pod import qos_class
from koordinator.model.pod_requests import pod_limits, pod_requests

Amounts = dict[str, int]
"""Name in ``spec.hard`` -> exact amount in units of 10**-9."""

ONE: Final = 10**9
UNPREFIXED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources whose requests are also counted under their own name; and alone in having limits that are counted."""
_CLAIM_SUFFIX: Final = ".storageclass.storage.k8s.io/"
_COUNTED_BY_NAME: Final = frozenset(
    {"pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"}
)


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage that an object counts as, and the scopes of quotas that match it."""

    kind: tuple[str, str]
    """Group and plural."""
    amounts: Amounts
    scopes: frozenset[str] = frozenset()
    """Those that hold for a pod; empty for everything else."""
    priority_class: str = ""
    unspecified: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Name of a quota -> the containers that would have to say how much they need."""


def usage_of(resource: Resource, obj: Document) -> Usage:
    kind = (resource.group, resource.plural)
    counted = f"count/{resource.plural}.{resource.group}" if resource.group else f"count/{resource.plural}"
    if kind == ("", "pods"):
        # Typed pods and what works on them take longer to import than all else of quotas, which most clusters have not.
        from koordinator.cluster.quota.usage import pod_usage

        return pod_usage(obj, counted)
    amounts = {counted: ONE}
    if not resource.group and resource.plural in _COUNTED_BY_NAME:
        amounts[resource.plural] = ONE
    if kind == ("", "services"):
        amounts |= _service(obj.get("spec") or {})
    elif kind == ("", "persistentvolumeclaims"):
        amounts |= _claim(obj)
    return Usage(kind, amounts)


def growth(usage: Usage, before: Usage) -> Usage:
    """What an object counts more than it did."""
    more = {name: amount - before.amounts.get(name, 0) for name, amount in usage.amounts.items()}
    return replace(usage, amounts={name: amount for name, amount in more.items() if amount > 0})


def is_enforced(name: str) -> bool:
    """Whether something is ever counted under a name of ``spec.hard``."""
    known = name in _COUNTED_BY_NAME or name in UNPREFIXED or name.startswith(("count/", "requests.", "hugepages-"))
    limits = tuple(f"limits.{resource}" for resource in UNPREFIXED)
    return known or name in (*limits, "services.loadbalancers", "services.nodeports") or _CLAIM_SUFFIX in name


def kind_of(name: str) -> tuple[str, str]:
    """The group and plural of what is counted under a name of ``spec.hard``."""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return group, plural
    if name == "requests.storage" or _CLAIM_SUFFIX in name:
        return "", "persistentvolumeclaims"
    first = name.partition(".")[0]
    return "", first if first in _COUNTED_BY_NAME else "pods"


def covers(quota_spec: Document, usage: Usage) -> bool:
    """Whether a quota's scopes let it count the object; a quota with scopes counts pods alone."""
    expressions = (quota_spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    terms: list[tuple[str, str, tuple[str, ...]]] = [
        *((scope, "Exists", ()) for scope in quota_spec.get("scopes") or ()),
        *((each["scopeName"], each["operator"], tuple(each.get("values") or ())) for each in expressions),
    ]
    return not terms or (usage.kind == ("", "pods") and all(_in_scope(usage, *term) for term in terms))


def printed(name: str, amount: int) -> str:
    """As the real server prints it: memory and storage in powers of two where that comes out even."""
    binary = name.endswith(("memory", "storage")) or "hugepages-" in name
    return str(Quantity(amount, Format.BINARY_SI if binary else Format.DECIMAL_SI))


def listed(amounts: Mapping[str, int], names: Iterable[str]) -> str:
    """``pods=1,requests.cpu=2``, in the order of names."""
    return ",".join(f"{name}={printed(name, amounts.get(name, 0))}" for name in sorted(names))


def _in_scope(usage: Usage, scope: str, operator: str, values: tuple[str, ...]) -> bool:
    if scope != "PriorityClass":
        return scope in usage.scopes
    match operator:
        case "In":
            return usage.priority_class in values
        case "NotIn":
            return usage.priority_class not in values
        case "Exists":
            return bool(usage.priority_class)
        case _:
            return not usage.priority_class


def _service(spec: Document) -> Amounts:
    ports, kind = len(spec.get("ports") or ()) * ONE, spec.get("type")
    if kind == "NodePort":
        return {"services.nodeports": ports}
    if kind == "LoadBalancer":
        allocated = spec.get("allocateLoadBalancerNodePorts") is not False
        return {"services.loadbalancers": ONE, **({"services.nodeports": ports} if allocated else {})}
    return {}


def _claim(claim: Document) -> Amounts:
    spec = claim.get("spec") or {}
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    requested = Quantity.parse(storage).nanos if storage is not None else 0
    amounts = {"requests.storage": requested}
    if storage_class := spec.get("storageClassName"):
        prefix = f"{storage_class}{_CLAIM_SUFFIX}"
        amounts |= {f"{prefix}requests.storage": requested, f"{prefix}persistentvolumeclaims": ONE}
    return amounts


# What a pod counts towards quotas: itself, its requests and limits, and the scopes that hold for it; pure.


_MUST_BE_SPECIFIED: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""A quota of one of these is no use while containers may leave it out."""
_ENDED: Final = ("Succeeded", "Failed")


def pod_usage(obj: Document, counted: str) -> Usage:
    """``counted`` is the name under which the object itself counts."""
    spec = obj["spec"]
    amounts = {counted: ONE}
    if (obj.get("status") or {}).get("phase") not in _ENDED:
        pod = convert(obj, Pod)
        amounts["pods"] = ONE
        _add_requests(amounts, pod_requests(pod))
        amounts |= {f"limits.{n}": amount for n, amount in pod_limits(pod).items() if n in UNPREFIXED}
    return Usage(("", "pods"), amounts, _scopes(spec), spec.get("priorityClassName") or "", _unspecified(spec))


def _add_requests(amounts: Amounts, requests: Mapping[str, int]) -> None:
    for name, amount in requests.items():
        amounts[f"requests.{name}"] = amount
        if name in UNPREFIXED or name.startswith("hugepages-"):
            amounts[name] = amount


def _scopes(spec: Document) -> frozenset[str]:
    ends = spec.get("activeDeadlineSeconds") is not None
    scopes = {"Terminating" if ends else "NotTerminating"}
    scopes.add("BestEffort" if qos_class(spec) == "BestEffort" else "NotBestEffort")
    if any(_crosses_namespaces(term) for term in _pod_affinity_terms(spec.get("affinity") or {})):
        scopes.add("CrossNamespacePodAffinity")
    return frozenset(scopes)


def _pod_affinity_terms(affinity: Document) -> list[Document]:
    terms: list[Document] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms += rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        terms += [weighted.get("podAffinityTerm") or {} for weighted in preferred]
    return terms


def _crosses_namespaces(term: Document) -> bool:
    return bool(term.get("namespaces")) or term.get("namespaceSelector") is not None


def _unspecified(spec: Document) -> dict[str, frozenset[str]]:
    missing: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in _MUST_BE_SPECIFIED:
            of, _, resource = name.rpartition(".")
            if resource not in (limits if of == "limits" else requests):
                missing.setdefault(name, set()).add(container.get("name") or "")
    return {name: frozenset(containers) for name, containers in missing.items()}
