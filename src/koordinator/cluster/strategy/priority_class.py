"""PriorityClasses, of which the value never changes; which priority a pod gets, the plugin Priority decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, defaults_of
from koordinator.cluster.strategy.rules import choice
from koordinator.cluster.strategy.table import AGE, NAME, boolean, integer, table, text

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
