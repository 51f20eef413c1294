"""PriorityClasses: their range, and that a value never changes under the pods that were given it."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, not_supported
from koordinator.cluster.strategy.defaults import defaults_of
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.pod_admission import SCHEDULING_GROUP, SYSTEM_PRIORITY_CLASSES
from koordinator.cluster.strategy.table import AGE, NAME, boolean, integer, table, text

_HIGHEST_USER_VALUE: Final = 1_000_000_000
_DESCRIPTIONS: Final = {
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
    "system-cluster-critical": (
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
    ),
}
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

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        value = obj.get("value") or 0
        policies = ("PreemptLowerPriority", "Never")
        causes = []
        if obj.get("preemptionPolicy") not in policies:
            causes.append(not_supported("preemptionPolicy", obj.get("preemptionPolicy"), policies))
        if old is not None:
            causes += [
                forbidden(name, "may not be changed in an update.") if name == "value" else _immutable(obj, name)
                for name in ("value", "preemptionPolicy")
                if obj.get(name) != old.get(name)
            ]
        else:
            causes += _check_name(obj["metadata"].get("name") or "", value)
        return causes


def _immutable(obj: Document, name: str) -> Cause:
    return invalid(name, obj.get(name), "field is immutable")


def _check_name(name: str, value: int) -> list[Cause]:
    if name.startswith("system-"):
        if SYSTEM_PRIORITY_CLASSES.get(name) == value:
            return []
        detail = "priority class names with 'system-' prefix are reserved for system use only"
        known = "is not a known system priority class" if name not in SYSTEM_PRIORITY_CLASSES else "value is not known"
        return [forbidden("metadata.name", f"{detail}. error: {name} {known}")]
    if value > _HIGHEST_USER_VALUE:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_VALUE}"
        return [forbidden("value", detail)]
    return []


def system_priority_classes() -> list[Document]:
    """The two classes that every cluster has from its first second."""
    return [
        {
            "apiVersion": f"{SCHEDULING_GROUP}/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": _DESCRIPTIONS[name],
        }
        for name, value in SYSTEM_PRIORITY_CLASSES.items()
    ]
