"""``/mutate-node-status``: resource amplification, in which a node has more allocatable CPU or memory than capacity.

The kubelet's updates are recognised by one sign alone: an update that changes allocatable CPU or memory is the
kubelet's, since no other client writes them (pkg/webhook/node/plugins/resourceamplification).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, convert, decode, encode
from koordinator.api.document import Document
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.base.errors import KoordinatorError
from koordinator.manager.webhook.admission import (
    ALLOWED,
    UNMEASURED,
    AdmissionRequest,
    AdmissionResponse,
    Steps,
    content,
)
from koordinator.model.overcommit.amounts import scaled

T = TypeVar("T")
_AMPLIFIED: Final = (CPU, MEMORY)
_PLUGIN: Final = "NodeResourceAmplificationPlugin"
_CHANGED: Final[Mapping[str, str]] = MappingProxyType({"metadata": "annotations", "status": "allocatable"})
"""The fields of a node, by part, that may be modified."""


class AmplificationError(KoordinatorError):
    """An annotation of the node that cannot be read."""


def amplify(node: Document, old: Document | None) -> None:
    """Change ``node`` in place; ``old`` is the node before the update. Raises AmplificationError, and DecodeError where
    the node's allocatable cannot be read."""
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
    """The node's allocatable before amplification, which its annotation remembers."""
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
    # Rounded up, since part of a byte is of no use to a pod; readers of whole bytes round up as well.
    return Quantity.from_value(product.value, product.format) if resource == MEMORY else product


def _amounts(allocatable: Mapping[str, Any]) -> ResourceList:
    amounts: ResourceList = convert(
        {name: allocatable[name] for name in _AMPLIFIED if name in allocatable}, ResourceList
    )
    return amounts


def _part(document: Document, *path: str) -> dict[str, Any]:
    """The object at a path; where it is missing, a new empty one that is not part of the document."""
    for name in path:
        document = document.get(name) or {}
    return document


class NodeStatusMutatingHandler:
    """Amplifies updates of the node status; all other requests pass."""

    path = "/mutate-node-status"

    def __init__(self, steps: Steps = UNMEASURED) -> None:
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises AmplificationError for annotations that cannot be read, and DecodeError for an object that is no
        node."""
        if request.resource != "nodes" or request.sub_resource != "status" or request.operation != "UPDATE":
            return ALLOWED
        reported = content(request.object)
        node = _writable(reported)
        with self._steps.step(request.operation, _PLUGIN):
            amplify(node, request.old_object)
        changed = any(node[part] != reported[part] for part in _CHANGED if part in node)
        return AdmissionResponse(changed=node) if changed else ALLOWED


def _writable(node: Document) -> Document:
    """A copy of the parts that may be modified; the rest, which lists every image of the node, is shared."""
    copy = dict(node)
    for part, member in _CHANGED.items():
        if isinstance(copy.get(part), dict):
            copy[part] = {**copy[part]}
            if isinstance(copy[part].get(member), dict):
                copy[part][member] = {**copy[part][member]}
    return copy
