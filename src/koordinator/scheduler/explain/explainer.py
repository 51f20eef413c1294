"""The details that a plugin can add to the reasons in events, and words for amounts, selectors and kinds of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from koordinator.api import resource_names
from koordinator.model.label_selector import CompiledSelector
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Lack:
    """What a node lacks for the plugin to let the pod pass: ``cpu: needs 4, free 2.5``."""

    text: str
    shortfall: float = 1.0
    """The missing share of what is needed, by which nodes are ordered."""


class Explainer(Plugin):
    """A Filter plugin that derives from this adds details to ``koord explain``. Its methods are called only for
    that."""

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        """What is missing on ``row``, for which ``filter`` returned ``code`` (not FEASIBLE); empty when there is
        nothing to add to the reasons."""
        return ()

    def pod_facts(self, pod: PodInfo) -> Sequence[str]:
        """What the plugin takes the pod for, in sentences, where that does not follow from the pod alone."""
        return ()

    def node_facts(self, row: int) -> Mapping[str, Any] | None:
        """The plugin's own facts about the node, beyond those of the Node object, as a JSON object; None for none."""
        return None


_BINARY: Final = ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)
_MILLI_CPU: Final = frozenset(resource_names.EXTENDED_CPUS)
"""Their whole numbers are milli-CPU, unlike those of ``cpu``, whose unit in the API is the core."""
_PERCENT: Final = frozenset({resource_names.GPU, resource_names.GPU_CORE, resource_names.GPU_MEMORY_RATIO})


def amount_text(resource: str, amount: int) -> str:
    """``amount`` in the unit of its column (milli-CPU, bytes or a count), rounded to three digits after the point.

    For what is neither CPU nor bytes nor a percentage, the name of the resource is the unit, and the text is the number
    alone (see ``amount_of``).
    """
    if resource == resource_names.CPU:
        return f"{_decimal(amount, 1000)} core{'' if abs(amount) == 1000 else 's'}"
    if resource in _MILLI_CPU:
        return f"{amount}m"
    if resource in _PERCENT:
        return f"{amount} %"
    if resource == resource_names.PODS:
        return f"{amount} pod{'' if amount == 1 else 's'}"
    if _is_bytes(resource):
        for suffix, bits in _BINARY:
            if abs(amount) >= 1 << bits:
                return f"{_decimal(amount, 1 << bits)}{suffix}"
        return f"{amount} B"
    return str(amount)


def amount_of(resource: str, amount: int) -> str:
    """``6 cores of cpu``, ``2 example.com/gpu``: the amount with the name of the resource."""
    text = amount_text(resource, amount)
    if resource == resource_names.PODS:
        return text
    return f"{text} {resource}" if text == str(amount) else f"{text} of {resource}"


def _is_bytes(resource: str) -> bool:
    return resource.endswith(("memory", "storage")) or "hugepages-" in resource


def _decimal(amount: int, unit: int) -> str:
    return f"{amount / unit:.3f}".rstrip("0").rstrip(".")


_MEANING: Final[Mapping[str, str]] = {
    EventKind.NODE_ADD: "a node is added",
    EventKind.NODE_ALLOCATABLE: "a node offers more, or an annotation of it changes",
    EventKind.NODE_LABEL: "labels of a node change",
    EventKind.NODE_TAINT: "a node is uncordoned or its taints change",
    EventKind.NODE_CONDITION: "conditions or images of a node change",
    EventKind.NODE_DELETE: "a node is deleted",
    EventKind.POD_DELETE: "a pod on some node finishes or is deleted",
    EventKind.POD_SCALE_DOWN: "a pod on some node is resized to request less",
    EventKind.POD_ADD: "another pod is placed",
    EventKind.POD_LABEL: "labels of a pod on some node change",
    EventKind.POD_UPDATE: "this pod itself is changed",
    "NodeMetric/Add": "a node reports its usage for the first time",
    "NodeMetric/Update": "a node reports new usage",
    "NodeMetric/Expire": "the usage report of a node becomes too old, so that its load is no longer looked at",
    "NodeMetric/Delete": "the usage report of a node is deleted",
    "ElasticQuota/SharesChanged": "its ElasticQuota may use more",
}
_ACTIONS: Final = {"Add": "created", "Update": "changed", "Delete": "deleted"}


def event_meaning(kind: str) -> str:
    """``Node/Add`` in words."""
    known = _MEANING.get(kind)
    if known is not None:
        return known
    name, _, action = kind.partition("/")
    article = "an" if name[:1] in "AEIO" else "a"
    return f"{article} {name} is {_ACTIONS.get(action, 'changed')}"


_Plain = tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str, Sequence[str]]], bool]
_SHOWN: Final = 3


def selector_text(selector: CompiledSelector) -> str:
    """The requirements of the selector, such as ``app=web``; "any labels" if it has none."""
    equalities, others, nothing = cast("_Plain", selector.key)
    if nothing:
        return "no labels at all"
    required = [f"{key}={value}" for key, value in equalities] + [_requirement(*each) for each in others]
    return ", ".join(required) or "any labels"


def some(names: Iterable[str], count: int | None = None) -> str:
    """The first few of ``names``, and how many more there are of ``count`` in all (None: of the names)."""
    listed = list(names)
    shown = listed[:_SHOWN]
    more = (len(listed) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _requirement(key: str, operator: str, values: Sequence[str]) -> str:
    match operator:
        case "In":
            return f"{key} in ({', '.join(values)})"
        case "NotIn":
            return f"{key} not in ({', '.join(values)})"
        case "Exists":
            return key
        case _:
            return f"!{key}"
