"""Koordinator's priority classes: ranges of pod priority that decide which resources a pod consumes."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from koordinator.api import labels
from koordinator.api.field_error import FieldError, InvalidFieldError
from koordinator.api.pod import Pod
from koordinator.api.qos import QoSClass, qos_class_with_default


class PriorityClass(StrEnum):
    """In the order in which listings name them; NONE is a pod of no class."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


PRIORITY_RANGES: Final = {
    PriorityClass.PROD: range(9000, 10_000),
    PriorityClass.MID: range(7000, 8000),
    PriorityClass.BATCH: range(5000, 6000),
    PriorityClass.FREE: range(3000, 4000),
}
DEFAULT_PRIORITIES: Final = {
    PriorityClass.PROD: 9500,
    PriorityClass.MID: 7500,
    PriorityClass.BATCH: 5500,
    PriorityClass.FREE: 3500,
    PriorityClass.NONE: 0,
}
"""What a pod of a class counts as when it has no priority of its own."""

_KNOWN: Final = {member.value: member for member in PriorityClass}
_OF_QOS: Final = {
    QoSClass.SYSTEM: PriorityClass.PROD,
    QoSClass.LSE: PriorityClass.PROD,
    QoSClass.LSR: PriorityClass.PROD,
    QoSClass.LS: PriorityClass.PROD,
    QoSClass.BE: PriorityClass.BATCH,
}
_GO_INTEGER: Final = re.compile(
    r"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*)"
)
_INT32: Final = range(-(2**31), 2**31)


def priority_class_of_name(name: str) -> PriorityClass:
    """The class of that name; NONE for any other text."""
    return _KNOWN.get(name, PriorityClass.NONE)


@lru_cache(maxsize=4096)
def priority_class_of_value(priority: int | None) -> PriorityClass:
    """The class in whose range a priority lies."""
    if priority is None:
        return PriorityClass.NONE
    return next((name for name, values in PRIORITY_RANGES.items() if priority in values), PriorityClass.NONE)


def priority_class_raw(pod: Pod) -> PriorityClass:
    """The class that the pod's label names where it has one, whatever it says; else that of its priority."""
    named = pod.metadata.labels.get(labels.PRIORITY_CLASS)
    if named is not None:
        return priority_class_of_name(named)
    return priority_class_of_value(pod.spec.priority)


def priority_class_with_default(pod: Pod) -> PriorityClass:
    """The raw class, else the one that goes with the pod's quality of service."""
    return priority_class_raw(pod) or _OF_QOS.get(qos_class_with_default(pod), PriorityClass.NONE)


def priority_value_with_default(pod: Pod | None) -> int:
    """The pod's priority, else the default of its class; 0 for no pod."""
    if pod is None:
        return 0
    return pod.spec.priority or DEFAULT_PRIORITIES[priority_class_with_default(pod)]


def sub_priority(pod_labels: dict[str, str]) -> int:
    """The order within a priority class, from the pod's labels; 0 when it has none.

    Raises InvalidFieldError when the label is no int32 in Go's notation (``0x`` and a leading ``0`` choose the base).
    """
    text = pod_labels.get(labels.PRIORITY, "")
    if not text:
        return 0
    value = _parse_go_integer(text) if _GO_INTEGER.fullmatch(text) else None
    if value is None or value not in _INT32:
        raise InvalidFieldError(
            FieldError.invalid(f"metadata.labels[{labels.PRIORITY}]", text, "must be an integer of 32 bits")
        )
    return value


def _parse_go_integer(text: str) -> int:
    digits = text.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "_01234567"
    magnitude = int(digits, 8 if octal else 0)
    return -magnitude if text.startswith("-") else magnitude
