"""PriorityClasses, and the priority that a pod is given at its creation; the value of a class never changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import forbidden, invalid
from koordinator.cluster.strategy.containers import defaults_of
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.rules import choice
from koordinator.cluster.strategy.table import AGE, NAME, boolean, integer, table, text

# What the default admission plugins of the real server do to a new pod: Priority and DefaultTolerationSeconds.


SCHEDULING_GROUP: Final = "scheduling.k8s.io"


class SystemPriorityClass(NamedTuple):
    """One of those that every cluster has."""

    value: int
    description: str


SYSTEM_PRIORITY_CLASSES: Final[Mapping[str, SystemPriorityClass]] = {
    "system-node-critical": SystemPriorityClass(
        2_000_001_000, "Used for system critical pods that must not be moved from their current node."
    ),
    "system-cluster-critical": SystemPriorityClass(
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
}
_TOLERATION_SECONDS: Final = 300
_LOST_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PREEMPT: Final = "PreemptLowerPriority"


def add_default_tolerations(spec: Document) -> None:
    """A pod that says nothing of lost nodes stays on one for five minutes."""
    tolerations = spec.get("tolerations") or []
    missing = [key for key in _LOST_NODE_TAINTS if not any(_covers(toleration, key) for toleration in tolerations)]
    if missing:
        added = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
            for key in missing
        ]
        spec["tolerations"] = [*tolerations, *added]


def _covers(toleration: Document, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def resolve_priority(pod: Document, context: RequestContext) -> None:
    """Turn ``priorityClassName`` into numbers. Raises ApiError 403 for an unknown class or a contradicting number."""
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    found = _named_class(pod, name, context) if name else _global_default(context)
    if found is not None and not name:
        spec["priorityClassName"] = found["metadata"]["name"]
    priority = (found or {}).get("value") or 0
    policy = (found or {}).get("preemptionPolicy") or _PREEMPT
    _refuse_other(pod, "integer", "priority", spec.get("priority"), priority)
    _refuse_other(pod, "string", "PreemptionPolicy", spec.get("preemptionPolicy"), policy)
    spec["priority"], spec["preemptionPolicy"] = priority, policy


def _named_class(pod: Document, name: str, context: RequestContext) -> Document:
    found = context.lookup(SCHEDULING_GROUP, "priorityclasses", None, name)
    if found is not None:
        return found
    if name in SYSTEM_PRIORITY_CLASSES:
        return {"metadata": {"name": name}, "value": SYSTEM_PRIORITY_CLASSES[name].value}
    raise _forbidden(pod, f"no PriorityClass with name {name} was found")


def _global_default(context: RequestContext) -> Document | None:
    # Two at once can only come from a race; the real server takes the lower one, too.
    classes = context.list_objects(SCHEDULING_GROUP, "priorityclasses")
    return min((c for c in classes if c.get("globalDefault")), key=lambda c: c.get("value") or 0, default=None)


def _refuse_other(pod: Document, kind: str, name: str, given: Any, computed: Any) -> None:
    if given is not None and given != computed:
        raise _forbidden(
            pod,
            f"the {kind} value of {name} ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {computed} from the given PriorityClass name",
        )


def _forbidden(pod: Document, why: str) -> ApiError:
    metadata = pod["metadata"]
    name = metadata.get("name") or metadata.get("generateName") or "unknown"
    details = {"name": name, "kind": "pods"}
    return ApiError(403, "Forbidden", f'pods "{name}" is forbidden: {why}', details)


_HIGHEST_USER_VALUE: Final = 1_000_000_000
_TABLE: Final = table(
    NAME,
    integer("Value", "value"),
    boolean("Global-Default", "globalDefault"),
    AGE,
    text("PreemptionPolicy", "preemptionPolicy"),
)


@defaults_of("io.k8s.api.scheduling.v1.PriorityClass")
def _priority_class(obj: Document) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


class PriorityClassStrategy(ObjectStrategy):
    def __init__(self) -> None:
        super().__init__("scheduling.k8s.io/v1", "PriorityClass", namespaced=False, table=_TABLE, generation=True)

    def admit(self, obj: Document, context: RequestContext) -> None:
        _only_default(obj, context)

    def admit_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        _only_default(obj, context)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        value = obj.get("value") or 0
        if old is None:
            policy = choice("PreemptLowerPriority", "Never")(obj.get("preemptionPolicy"), "preemptionPolicy")
            return _check_name(obj["metadata"].get("name") or "", value) + policy
        return [
            forbidden(name, "may not be changed in an update.") if name == "value" else _immutable(obj, name)
            for name in ("value", "preemptionPolicy")
            if obj.get(name) != old.get(name)
        ]


def _only_default(obj: Document, context: RequestContext) -> None:
    """Raises ApiError 403 for a second class that pods without one would get."""
    if not obj.get("globalDefault"):
        return
    name = obj["metadata"].get("name") or ""
    for other in context.list_objects(SCHEDULING_GROUP, "priorityclasses"):
        named = other["metadata"].get("name")
        if other.get("globalDefault") and named != name:
            why = f"PriorityClass {named} is already marked as default. Only one default can exist"
            message = f'priorityclasses.{SCHEDULING_GROUP} "{name}" is forbidden: {why}'
            details = {"name": name, "group": SCHEDULING_GROUP, "kind": "priorityclasses"}
            raise ApiError(403, "Forbidden", message, details)


def _immutable(obj: Document, name: str) -> Cause:
    return invalid(name, obj.get(name), "field is immutable")


def _check_name(name: str, value: int) -> list[Cause]:
    if name.startswith("system-"):
        system_class = SYSTEM_PRIORITY_CLASSES.get(name)
        if system_class is not None and system_class.value == value:
            return []
        detail = "priority class names with 'system-' prefix are reserved for system use only"
        known = "is not a known system priority class" if system_class is None else "value is not known"
        return [forbidden("metadata.name", f"{detail}. error: {name} {known}")]
    if value > _HIGHEST_USER_VALUE:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_VALUE}"
        return [forbidden("value", detail)]
    return []
