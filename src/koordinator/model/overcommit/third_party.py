"""Batch capacity that is shared with schedulers outside Kubernetes, such as Hadoop YARN.

They read from one annotation of the node how much there was before their part was taken off, and say in another one
how much they have given away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode, decode_any, encode
from koordinator.api.meta import WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.priority import PriorityClass
from koordinator.api.quantity import Quantity


class ThirdPartyAllocation(WireStruct):
    name: str = ""
    priority: str = ""
    resources: ResourceList = {}


class ThirdPartyAllocations(WireStruct):
    """The annotation node.koordinator.sh/thirdPartyAllocations."""

    allocations: list[ThirdPartyAllocation] = []


def third_party_batch(node_annotations: Mapping[str, str]) -> dict[str, int]:
    """What others have given away of each batch resource, in whole units, rounded up. Raises DecodeError."""
    text = node_annotations.get(annotation_keys.THIRD_PARTY_ALLOCATIONS)
    sums: dict[str, int] = {}
    if text is None:
        return sums
    for allocation in decode(text, ThirdPartyAllocations).allocations:
        if allocation.priority == PriorityClass.BATCH:
            for name, amount in allocation.resources.items():
                sums[name] = sums.get(name, 0) + amount.nanos
    # Nobody makes capacity by giving away less than nothing.
    return {name: max(Quantity(nanos).value, 0) for name, nanos in sums.items()}


def origin_text(current: str | None, amounts: Mapping[str, Quantity]) -> str:
    """The annotation node.koordinator.sh/originExtendedAllocatable with these amounts; what else it says is kept,
    unless it cannot be read."""
    document = _document(current)
    given = document.get("resources")
    resources: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    resources.update({name: str(amount) for name, amount in amounts.items()})
    document["resources"] = {name: resources[name] for name in sorted(resources)}
    return encode(document).decode()


def _document(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        document = decode_any(text)
    except DecodeError:
        return {}
    return document if isinstance(document, dict) else {}
