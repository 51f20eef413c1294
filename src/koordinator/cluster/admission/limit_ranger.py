"""LimitRanger: containers get the requests and limits that a LimitRange of their namespace gives by default, and what
is beyond its bounds is refused.

Pods are looked at when they are created and when their containers are resized, claims whenever they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.strategy.pod_resources import of_containers, parsed
from koordinator.cluster.verbs.environment import Attributes, Environment, GroupResource, Operation

_PODS: Final = ("", "pods")
_CLAIMS: Final = ("", "persistentvolumeclaims")
_RANGES: Final = ("", "limitranges")
_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_GROUPS: Final = (("containers", "container"), ("initContainers", "init container"))
_OF_PODS: Final = ("cpu", "memory")
_MOST_EXACT: Final = (2**63 - 1) // 1000
"""Whole units up to which amounts are compared by thousandths, as in Kubernetes."""

Amounts = Mapping[str, Quantity]
_Named = tuple[str, Quantity | None]


class LimitRanger(Plugin):
    name = "LimitRanger"
    resources = (_PODS, _CLAIMS)
    operations = ("CREATE", "UPDATE")
    subresources = ("", "resize")
    idle_by = (_RANGES,)

    def concerns(self, resource: GroupResource, subresource: str, operation: Operation) -> bool:
        """An update of a pod itself cannot change what its containers request."""
        if resource == _PODS and (operation == "UPDATE") != (subresource == "resize"):
            return False
        return super().concerns(resource, subresource, operation)

    def is_idle(self, operation: Operation, namespace: str | None, objects: Environment) -> bool:
        return not objects.list_objects(*_RANGES, namespace)

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.target.resource.plural != "pods":
            return
        for limits in _ranges(attributes):
            _set_defaults(attributes.obj or {}, limits)

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError 403, which names all that the first range with an objection objects to."""
        violations = _pod_violations if attributes.target.resource.plural == "pods" else _claim_violations
        for limits in _ranges(attributes):
            if found := list(dict.fromkeys(violations(attributes.obj or {}, limits))):
                raise refused(attributes, found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _ranges(attributes: Attributes) -> Iterator[list[Document]]:
    """The items of each LimitRange of the namespace; none for what is being deleted."""
    if attributes.old is not None and attributes.old["metadata"].get("deletionTimestamp"):
        return
    for found in attributes.context.list_objects(*_RANGES, attributes.target.namespace):
        yield found["spec"].get("limits") or []


# Defaults.


def _set_defaults(pod: Document, limits: Iterable[Document]) -> None:
    given = {"requests": dict[str, Any](), "limits": dict[str, Any]()}
    for limit in limits:
        if limit.get("type") == "Container":
            given["requests"].update(limit.get("defaultRequest") or {})
            given["limits"].update(limit.get("default") or {})
    notes = [
        note
        for group, title in _GROUPS
        for container in pod["spec"].get(group) or ()
        for note in _defaulted(container, title, given)
    ]
    if notes:
        annotations = pod["metadata"].get("annotations") or {}
        annotations[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"
        pod["metadata"]["annotations"] = annotations


def _defaulted(container: Document, title: str, given: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Fill in one container; says what was filled in."""
    for group, word in (("requests", "request"), ("limits", "limit")):
        amounts = (container.get("resources") or {}).get(group) or {}
        missing = sorted(given[group].keys() - amounts.keys())
        if missing:
            resources = container.setdefault("resources", {})
            resources[group] = {**amounts, **{name: given[group][name] for name in missing}}
            yield f"{', '.join(missing)} {word} for {title} {container.get('name') or ''}"


# Bounds.


def _pod_violations(pod: Document, limits: Iterable[Document]) -> Iterator[str]:
    for limit in limits:
        if limit.get("type") == "Container":
            for group, _ in _GROUPS:
                for container in pod["spec"].get(group) or ():
                    resources = container.get("resources") or {}
                    yield from _violations(limit, parsed(resources, "requests"), parsed(resources, "limits"))
        elif limit.get("type") == "Pod":
            yield from _violations(limit, *_pod_amounts(pod))


def _violations(limit: Document, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = limit["type"]
    for name, least in parsed(limit, "min").items():
        yield from _below(kind, name, least, requests, limits)
    for name, most in parsed(limit, "max").items():
        yield from _above(kind, name, most, requests, limits)
    for name, ratio in parsed(limit, "maxLimitRequestRatio").items():
        yield from _ratio(kind, name, ratio, requests, limits)


def _claim_violations(claim: Document, limits: Iterable[Document]) -> Iterator[str]:
    """A claim has no limits: what it requests counts."""
    requests = parsed(claim["spec"].get("resources") or {}, "requests")
    for limit in limits:
        if limit.get("type") != "PersistentVolumeClaim":
            continue
        for name, least in parsed(limit, "min").items():
            yield from _below(limit["type"], name, least, requests, {})
        for name, most in parsed(limit, "max").items():
            bound = f"maximum {name} usage per {limit['type']} is {most}"
            yield from _compared(bound, ("request", requests.get(name)), ("limit", None), partial(_exceeds, other=most))


def _below(kind: str, name: str, least: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    bound = f"minimum {name} usage per {kind} is {least}"
    request, limit = ("request", requests.get(name)), ("limit", limits.get(name))
    return _compared(bound, request, limit, lambda given: _exceeds(least, given))


def _above(kind: str, name: str, most: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    bound = f"maximum {name} usage per {kind} is {most}"
    limit, request = ("limit", limits.get(name)), ("request", requests.get(name))
    return _compared(bound, limit, request, lambda given: _exceeds(given, most))


def _compared(bound: str, needed: _Named, other: _Named, is_beyond: Callable[[Quantity], bool]) -> Iterator[str]:
    """An amount that has to be there, and one that may be."""
    if needed[1] is None:
        yield f"{bound}.  No {needed[0]} is specified"
        return
    beyond = next((name for name, given in (needed, other) if given is not None and is_beyond(given)), "")
    if beyond:
        yield f"{bound}, but {beyond} is {dict((needed, other))[beyond]}"


def _ratio(kind: str, name: str, most: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    bound = f"{name} max limit to request ratio per {kind} is {most}"
    request, limit = requests.get(name), limits.get(name)
    if not request:
        yield f"{bound}, but no request is specified or request is 0"
    elif not limit:
        yield f"{bound}, but no limit is specified or limit is 0"
    elif (ratio := _divided(limit, request)) * 1000 > most.milli:
        yield f"{bound}, but provided ratio is {ratio:f}"


def _exceeds(amount: Quantity, other: Quantity) -> bool:
    """By thousandths where both are small enough, which rounds what is finer up."""
    if max(amount.value, other.value) > _MOST_EXACT:
        return amount.value > other.value
    return amount.milli > other.milli


def _divided(limit: Quantity, request: Quantity) -> float:
    if max(limit.value, request.value) > _MOST_EXACT:
        return limit.value / request.value
    return limit.milli / request.milli


def _pod_amounts(pod: Document) -> tuple[Amounts, Amounts]:
    """What a pod requests and may use: its own amounts of CPU and memory, or else those of its containers. Overhead
    does not count."""
    own = pod["spec"].get("resources")
    requests, limits = (
        of_containers(pod["spec"], group) | {n: amount for n, amount in parsed(own, group).items() if n in _OF_PODS}
        for group in ("requests", "limits")
    )
    return requests, limits
