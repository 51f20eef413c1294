"""What a pod counts towards quotas: itself, its requests and limits, and the scopes that hold for it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.pod import Pod
from koordinator.cluster.quota.usage import ONE, UNPREFIXED, Amounts, Usage
from koordinator.cluster.strategy.qos import qos_class
from koordinator.model.pod_requests import pod_limits, pod_requests

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
