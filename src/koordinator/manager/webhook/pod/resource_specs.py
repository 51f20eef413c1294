"""Resources in the containers of plain pod documents: translated, normalized, and recorded in an annotation.

CPU and memory of batch and mid pods, and with the gate FreeResource of free pods, become the extended resources of
their class, so that Kubernetes neither schedules nor limits such a pod by native resources. GPU requests are normalised
to the form that the scheduler shares cards by: core and memory in percent, and the number of cards. CRI does not carry
extended resources, so koordlet reads them from an annotation of the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from koordinator.api.annotations import EXTENDED_RESOURCE_SPEC
from koordinator.api.codec import DecodeError, convert, decode_any, encode, to_document
from koordinator.api.document import Document
from koordinator.api.extended_resource_spec import ExtendedResourceSpec
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import (
    BEST_EFFORT,
    CPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    MEMORY,
    extended_name,
)
from koordinator.base.errors import KoordinatorError
from koordinator.manager.webhook.colocation_profile.changes import section

REQUESTS: Final = "requests"
LIMITS: Final = "limits"
_WHOLE_CARD: Final = 100
_GPU_RESOURCES: Final = frozenset({GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED})
_TRANSLATED: Final = (PriorityClass.BATCH, PriorityClass.MID, PriorityClass.FREE)
_EXTENDED: Final[Mapping[PriorityClass, Mapping[str, str]]] = {
    priority: {name: extended_name(name, priority) for name in (CPU, MEMORY)} for priority in _TRANSLATED
}


def containers(pod: Document, *lists: str) -> Iterator[Document]:
    """The containers in the named lists of the spec, such as ``initContainers``."""
    spec = pod.get("spec") or {}
    for name in lists:
        yield from spec.get(name) or ()


def listed(container: Document, part: str) -> Document:
    """The container's requests or limits, read-only."""
    return (container.get("resources") or {}).get(part) or {}


def writable(container: Document, part: str) -> Document:
    """The container's requests or limits to modify, created where they are missing."""
    resources = container.get("resources")
    if resources is None:
        resources = container["resources"] = {}
    found: Document | None = resources.get(part)
    if found is None:
        found = resources[part] = {}
    return found


@lru_cache(maxsize=4096)
def integer_text(amount: int) -> str:
    """An integer as Kubernetes formats it: 1000 is ``1k``."""
    return str(Quantity.from_value(amount))


def value_of(quantity: Any) -> int:
    """The quantity in whole units, rounded away from zero. Raises QuantityError."""
    return Quantity.parse(quantity).value


def normalise_device_resources(pod: Document) -> None:
    """Normalise GPU requests; changes ``pod`` in place."""
    for container in containers(pod, "containers"):
        requests, limits = listed(container, REQUESTS), listed(container, LIMITS)
        if _GPU_RESOURCES.isdisjoint(requests) and _GPU_RESOURCES.isdisjoint(limits):
            continue
        counted = GPU_SHARED in requests
        if GPU in requests:
            _split(container)
        if not counted:
            _count_cards(container)


def _split(container: Document) -> None:
    amount = integer_text(value_of(listed(container, REQUESTS)[GPU]))
    for part in (REQUESTS, LIMITS):
        amounts = writable(container, part)
        amounts.update({GPU_CORE: amount, GPU_MEMORY_RATIO: amount})
        amounts.pop(GPU, None)


def _count_cards(container: Document) -> None:
    requests = listed(container, REQUESTS)
    percent = value_of(requests.get(GPU_MEMORY_RATIO, requests.get(GPU_CORE, 0)))
    whole = percent > _WHOLE_CARD and percent % _WHOLE_CARD == 0
    cards = integer_text(percent // _WHOLE_CARD if whole else 1)
    for part in (REQUESTS, LIMITS):
        writable(container, part)[GPU_SHARED] = cards


class ExtendedResourceSpecError(KoordinatorError):
    """An annotation of the submitted pod that cannot be read."""


def record_extended_resources(pod: Document) -> None:
    """Set the annotation in place unless it is up to date. Raises ExtendedResourceSpecError."""
    named = {container["name"]: _extended(container) for container in containers(pod, "containers")}
    found = {name: named[name] for name in sorted(named) if named[name]}
    recorded = {"containers": found} if found else {}
    metadata = section(pod, "metadata")
    if _current(metadata) != recorded:
        section(metadata, "annotations")[EXTENDED_RESOURCE_SPEC] = encode(recorded).decode()


def _extended(container: Document) -> Document:
    amounts = {part: _amounts(listed(container, part)) for part in (LIMITS, REQUESTS)}
    return {part: found for part, found in amounts.items() if found}


def _amounts(amounts: Document) -> Document:
    return {name: str(Quantity.parse(amounts[name])) for name in BEST_EFFORT if name in amounts}


def _current(metadata: Document) -> Document:
    """The present value of the annotation, normalised to the form in which it is written."""
    text = (metadata.get("annotations") or {}).get(EXTENDED_RESOURCE_SPEC)
    if text is None:
        return {}
    try:
        parsed = decode_any(text)
        current: Document = to_document(convert({} if parsed is None else parsed, ExtendedResourceSpec))
    except DecodeError as error:
        raise ExtendedResourceSpecError(
            f"failed to get current extended resource spec, err: metadata.annotations[{EXTENDED_RESOURCE_SPEC}]: "
            f"{error}: leave the annotation out, since it is written at admission"
        ) from error
    return current


def translate_resources(pod: Document, *, free: bool = False) -> list[str]:
    """Translate by the pod's current priority class, that of free pods only if ``free``; changes ``pod`` in place.
    Returns warnings. Raises DecodeError."""
    priority = priority_class_of(pod)
    names = _EXTENDED.get(priority)
    if names is None or (priority is PriorityClass.FREE and not free):
        return []
    for container in containers(pod, "initContainers", "containers"):
        for part in (REQUESTS, LIMITS):
            _rename(listed(container, part), names)
        _request_limits(container, names)
    spec = pod.get("spec") or {}
    _rename(spec.get("overhead") or {}, names)
    return _pod_level_warnings(spec, names)


def priority_class_of(pod: Document) -> PriorityClass:
    """The priority class, from the fields that determine it: converting the whole pod takes as long as everything else
    here."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    read = {
        "metadata": {"labels": metadata.get("labels") or {}},
        "status": {"qosClass": (pod.get("status") or {}).get("qosClass") or ""},
        "spec": {
            "priority": spec.get("priority"),
            "resources": spec.get("resources"),
            "containers": [{"resources": each.get("resources") or {}} for each in containers(pod, "containers")],
            "initContainers": [
                {"resources": each.get("resources") or {}} for each in containers(pod, "initContainers")
            ],
        },
    }
    return priority_class_with_default(convert(read, Pod))


def _rename(amounts: Document, names: Mapping[str, str]) -> None:
    if CPU in amounts:
        amounts[names[CPU]] = integer_text(Quantity.parse(amounts.pop(CPU)).milli)
    if MEMORY in amounts:
        amounts[names[MEMORY]] = amounts.pop(MEMORY)


def _request_limits(container: Document, names: Mapping[str, str]) -> None:
    """A limit without a request becomes the request, as for native resources."""
    limits = listed(container, LIMITS)
    for name in names.values():
        if name in limits and name not in listed(container, REQUESTS):
            writable(container, REQUESTS)[name] = limits[name]


def _pod_level_warnings(spec: Document, names: Mapping[str, str]) -> list[str]:
    """Warnings for pod-level resources: Kubernetes has no pod-level extended resources, so these cannot be
    translated."""
    resources = spec.get("resources") or {}
    native = sorted({name for part in (REQUESTS, LIMITS) for name in resources.get(part) or () if name in names})
    if not native:
        return []
    extended = " and ".join(names[name] for name in native)
    return [
        f"spec.resources: {' and '.join(native)} of the pod as a whole stay native, since only containers can have "
        f"{extended}: write them into spec.containers[*].resources"
    ]
