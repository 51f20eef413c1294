"""Priority: the class that a pod names becomes numbers, and there is one default class at most."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.resource import RequestContext
from koordinator.cluster.strategy.priority_class import SCHEDULING_GROUP, SYSTEM_PRIORITY_CLASSES
from koordinator.cluster.verbs.environment import Attributes

_PREEMPT: Final = "PreemptLowerPriority"
_CLASSES: Final = (SCHEDULING_GROUP, "priorityclasses")


class Priority(Plugin):
    name = "Priority"
    resources = (("", "pods"), _CLASSES)
    operations = ("CREATE", "UPDATE")

    async def mutate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for an unknown class or a contradicting number."""
        pod, old = attributes.obj, attributes.old
        if attributes.target.resource.plural != "pods" or pod is None:
            return
        if old is None:
            _resolve(attributes, pod["spec"])
            return
        # These two are worked out on creation; a client that sends the object without them does not take them away.
        for name in ("priority", "preemptionPolicy"):
            if pod["spec"].get(name) is None and name in old["spec"]:
                pod["spec"][name] = old["spec"][name]

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for a second class that pods without one would get."""
        obj, target = attributes.obj, attributes.target
        if target.resource.plural == "pods" or obj is None or not obj.get("globalDefault"):
            return
        for other in attributes.context.list_objects(*_CLASSES):
            name = other["metadata"].get("name")
            if other.get("globalDefault") and name != obj["metadata"].get("name"):
                why = f"PriorityClass {name} is already marked as default. Only one default can exist"
                raise refused(attributes, why)


def _resolve(attributes: Attributes, spec: Document) -> None:
    name = spec.get("priorityClassName")
    found = _named_class(attributes, name) if name else _global_default(attributes.context)
    if found is not None and not name:
        spec["priorityClassName"] = found["metadata"]["name"]
    priority = (found or {}).get("value") or 0
    policy = (found or {}).get("preemptionPolicy") or _PREEMPT
    _refuse_other(attributes, "integer", "priority", spec.get("priority"), priority)
    _refuse_other(attributes, "string", "PreemptionPolicy", spec.get("preemptionPolicy"), policy)
    spec["priority"], spec["preemptionPolicy"] = priority, policy


def _named_class(attributes: Attributes, name: str) -> Document:
    found = attributes.context.lookup(*_CLASSES, None, name)
    if found is not None:
        return found
    if name in SYSTEM_PRIORITY_CLASSES:
        return {"metadata": {"name": name}, "value": SYSTEM_PRIORITY_CLASSES[name].value}
    raise refused(attributes, f"no PriorityClass with name {name} was found")


def _global_default(context: RequestContext) -> Document | None:
    # Two at once can only come from a race; the real server takes the lower one, too.
    classes = context.list_objects(*_CLASSES)
    return min((c for c in classes if c.get("globalDefault")), key=lambda c: c.get("value") or 0, default=None)


def _refuse_other(attributes: Attributes, kind: str, name: str, given: Any, computed: Any) -> None:
    if given is not None and given != computed:
        raise refused(
            attributes,
            f"the {kind} value of {name} ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {computed} from the given PriorityClass name",
        )
