"""RuntimeClass: a pod gets the overhead, the node selector and the tolerations of the class that it names."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.api.quantity import Quantity
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.admission.tolerations import merged
from koordinator.cluster.verbs.environment import Attributes

_OTHER_OVERHEAD: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_OWN_OVERHEAD: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClass(Plugin):
    name = "RuntimeClass"
    resources = (("", "pods"),)

    async def mutate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for a class that is not there, and for a pod that contradicts its class."""
        pod = attributes.obj
        assert pod is not None
        found = _class_of(attributes)
        if found is None:
            return
        if found.get("overhead") is not None:
            _set_overhead(attributes, pod["spec"], found["overhead"].get("podFixed") or {})
        if found.get("scheduling") is not None:
            _set_scheduling(attributes, pod["spec"], found["scheduling"])

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for an overhead that is not that of the class, which a webhook may have set."""
        assert attributes.obj is not None
        overhead = (_class_of(attributes) or {}).get("overhead")
        given = attributes.obj["spec"].get("overhead")
        if overhead is None and given is not None:
            raise refused(attributes, _OWN_OVERHEAD)
        if overhead is not None and not _same_amounts(overhead.get("podFixed") or {}, given or {}):
            raise refused(attributes, _OTHER_OVERHEAD)


def _class_of(attributes: Attributes) -> Document | None:
    """The class that the pod names; None where it names none. Raises ApiError 403."""
    name = (attributes.obj or {})["spec"].get("runtimeClassName")
    if name is None:
        return None
    found = attributes.context.lookup("node.k8s.io", "runtimeclasses", None, name)
    if found is None:
        raise refused(attributes, f'pod rejected: RuntimeClass "{name}" not found')
    return found


def _set_overhead(attributes: Attributes, spec: Document, fixed: Document) -> None:
    if spec.get("overhead") and not _same_amounts(fixed, spec["overhead"]):
        raise refused(attributes, _OTHER_OVERHEAD)
    if fixed:
        spec["overhead"] = dict(fixed)


def _set_scheduling(attributes: Attributes, spec: Document, scheduling: Document) -> None:
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            places = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] ="
            raise refused(attributes, f"conflict: {places} {selector[key]}")
        selector[key] = value
    if selector:
        spec["nodeSelector"] = selector
    tolerations = merged(spec.get("tolerations") or [], copied(scheduling.get("tolerations") or []))
    if tolerations:
        spec["tolerations"] = tolerations


def _same_amounts(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return {name: Quantity.parse(text) for name, text in one.items()} == {
        name: Quantity.parse(text) for name, text in other.items()
    }
