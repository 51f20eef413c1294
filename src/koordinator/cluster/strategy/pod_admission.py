"""What the default admission plugins of the real server do to a new pod: Priority and DefaultTolerationSeconds."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import RequestContext

SCHEDULING_GROUP: Final = "scheduling.k8s.io"
SYSTEM_PRIORITY_CLASSES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
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
        return {"metadata": {"name": name}, "value": SYSTEM_PRIORITY_CLASSES[name]}
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
