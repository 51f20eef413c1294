"""Resource amplification: a node offers more CPU or memory than it has, and remembers what it has.

What kubelet reports is told from what was amplified before by one sign alone: an update that changes allocatable CPU or
memory is kubelet's, since nobody else writes them (pkg/webhook/node/plugins/resourceamplification).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, convert, decode, encode
from koordinator.api.document import Document
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.base.errors import KoordinatorError
from koordinator.model.overcommit.amounts import scaled

T = TypeVar("T")
_AMPLIFIED: Final = (CPU, MEMORY)


class AmplificationError(KoordinatorError):
    """An annotation of the node that cannot be read."""


def amplify(node: Document, old: Document | None) -> None:
    """Change ``node`` in place; ``old`` is the node before the update. Raises AmplificationError, and DecodeError where
    what the node offers cannot be read."""
    annotations = _part(node, "metadata", "annotations")
    if not annotations.get(annotation_keys.RESOURCE_AMPLIFICATION_RATIO):
        annotations.pop(annotation_keys.RAW_ALLOCATABLE, None)
        return
    allocatable = (node.get("status") or {}).get("allocatable")
    if allocatable is None:
        return
    raw = _raw(
        annotations, _amounts(allocatable), None if old is None else _amounts(_part(old, "status", "allocatable"))
    )
    for resource, ratio in _ratios(annotations).items():
        if resource in _AMPLIFIED and ratio > 1 and resource in raw:
            allocatable[resource] = str(_product(resource, raw[resource], ratio))


def _raw(annotations: dict[str, str], now: ResourceList, before: ResourceList | None) -> ResourceList:
    """What the node has, remembered in its annotation."""
    remembered = annotations.get(annotation_keys.RAW_ALLOCATABLE)
    if remembered is None or (before is not None and before != now):
        if now:
            annotations[annotation_keys.RAW_ALLOCATABLE] = encode(dict(sorted(now.items()))).decode()
        return now
    return _decoded(annotation_keys.RAW_ALLOCATABLE, remembered, ResourceList, "node raw allocatable")


def _ratios(annotations: Mapping[str, str]) -> dict[str, float]:
    key = annotation_keys.RESOURCE_AMPLIFICATION_RATIO
    return _decoded(key, annotations[key], dict[str, float], "node resource amplification ratio")


def _decoded(key: str, text: str, expected: type[T], what: str) -> T:
    if text.strip() == "null":
        return expected()
    try:
        return decode(text, expected)
    except DecodeError as error:
        raise AmplificationError(f"failed to unmarshal {what}: annotation {key}={text!r}: {error}") from error


def _product(resource: str, amount: Quantity, ratio: float) -> Quantity:
    product = Quantity.from_milli(scaled(amount.milli, ratio), amount.format)
    # Part of a byte is none that a pod could have; whoever reads whole bytes rounds up as well.
    return Quantity.from_value(product.value, product.format) if resource == MEMORY else product


def _amounts(allocatable: Mapping[str, Any]) -> ResourceList:
    amounts: ResourceList = convert(
        {name: allocatable[name] for name in _AMPLIFIED if name in allocatable}, ResourceList
    )
    return amounts


def _part(document: Document, *path: str) -> dict[str, Any]:
    """The object at a path; an empty one, which belongs to nobody, where there is none."""
    for name in path:
        document = document.get(name) or {}
    return document
