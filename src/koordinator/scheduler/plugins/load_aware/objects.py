"""What the plugin reads of nodes and pods. An annotation that cannot be read counts as absent."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from koordinator.api import annotations as keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.node import Node
from koordinator.api.pod import Pod, ResourceList

_SECONDS: Final = re.compile(r"[+]?[0-9]{1,30}|-0{1,30}")
_MOST_INT64: Final = 2**63 - 1


def unamplified_allocatable(node: Node) -> ResourceList:
    """Allocatable, with the values from before amplification where the node's annotation has them."""
    text = node.metadata.annotations.get(keys.RAW_ALLOCATABLE)
    if not text:
        return node.status.allocatable
    try:
        raw = decode(text, ResourceList)
    except DecodeError:
        return node.status.allocatable
    return {**node.status.allocatable, **raw}


def scaling_factors(text: str) -> dict[str, int]:
    """Percent by resource, of a pod's annotation; none below 0, by which a pod would hide from the filter."""
    try:
        factors = decode(text, dict[str, int])
    except DecodeError:
        return {}
    return {name: factor for name, factor in factors.items() if 0 <= factor <= _MOST_INT64}


def seconds_or(text: str | None, default: int) -> int:
    """An annotation's whole seconds, or ``default`` where there is none that is a number of at least 0."""
    if text is None or not _SECONDS.fullmatch(text):
        return default
    seconds = int(text)
    return seconds if seconds <= _MOST_INT64 else default


def became_true(pod: Pod, condition_type: str) -> datetime | None:
    """Since when a condition of the pod holds; None while it does not."""
    for condition in pod.status.conditions:
        if condition.type == condition_type and condition.status == "True":
            return condition.last_transition_time
    return None


def is_of_daemon_set(pod: Pod) -> bool:
    """Whether a DaemonSet owns the pod, so that it belongs on its node however busy that is."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
