"""CPU and memory of batch and mid pods become the extended resources of their class.

The native names disappear, so that Kubernetes neither schedules nor limits such a pod by what online pods own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY, extended_name
from koordinator.manager.webhook.pod.amounts import LIMITS, REQUESTS, containers, integer_text, listed, writable

_TRANSLATED: Final = (PriorityClass.BATCH, PriorityClass.MID)
_EXTENDED: Final[Mapping[PriorityClass, Mapping[str, str]]] = {
    priority: {name: extended_name(name, priority) for name in (CPU, MEMORY)} for priority in _TRANSLATED
}


def translate_resources(pod: Document) -> list[str]:
    """Change ``pod`` in place, by its priority class as it is now. Returns warnings. Raises DecodeError."""
    names = _EXTENDED.get(_priority_class(pod))
    if names is None:
        return []
    for container in containers(pod, "initContainers", "containers"):
        for part in (REQUESTS, LIMITS):
            _rename(listed(container, part), names)
        _request_limits(container, names)
    spec = pod.get("spec") or {}
    _rename(spec.get("overhead") or {}, names)
    return _pod_level_warnings(spec, names)


def _priority_class(pod: Document) -> PriorityClass:
    """From those parts of the pod alone that decide about it: to convert the whole takes as long as all the rest."""
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
    """What is limited and not requested counts as requested, as for native resources."""
    limits = listed(container, LIMITS)
    for name in names.values():
        if name in limits and name not in listed(container, REQUESTS):
            writable(container, REQUESTS)[name] = limits[name]


def _pod_level_warnings(spec: Document, names: Mapping[str, str]) -> list[str]:
    """Kubernetes takes no extended resources for the pod as a whole, so what stands there cannot be translated."""
    resources = spec.get("resources") or {}
    native = sorted({name for part in (REQUESTS, LIMITS) for name in resources.get(part) or () if name in names})
    if not native:
        return []
    extended = " and ".join(names[name] for name in native)
    return [
        f"spec.resources: {' and '.join(native)} of the pod as a whole stay native, since only containers can have "
        f"{extended}: write them into spec.containers[*].resources"
    ]
