"""What containers have of batch resources, in an annotation.

The container runtime interface does not carry extended resources, so node agents read them there.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.annotations import EXTENDED_RESOURCE_SPEC
from koordinator.api.codec import DecodeError, convert, decode_any, encode, to_document
from koordinator.api.document import Document
from koordinator.api.extended_resource_spec import ExtendedResourceSpec
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.base.errors import KoordinatorError
from koordinator.manager.webhook.colocation_profile.changes import section
from koordinator.manager.webhook.pod.amounts import LIMITS, REQUESTS, containers, listed

_RECORDED: Final = (BATCH_CPU, BATCH_MEMORY)


class ExtendedResourceSpecError(KoordinatorError):
    """An annotation that the pod came with and that cannot be read."""


def record_extended_resources(pod: Document) -> None:
    """Set the annotation in place where it does not say already what it should. Raises ExtendedResourceSpecError."""
    named = {container["name"]: _extended(container) for container in containers(pod, "containers")}
    found = {name: named[name] for name in sorted(named) if named[name]}
    recorded = {"containers": found} if found else {}
    metadata = section(pod, "metadata")
    if _current(metadata) != recorded:
        section(metadata, "annotations")[EXTENDED_RESOURCE_SPEC] = encode(recorded).decode()


def _extended(container: Document) -> Document:
    amounts = {part: _amounts(listed(container, part)) for part in (LIMITS, REQUESTS)}
    return {part: found for part, found in amounts.items() if found}


def _amounts(amounts: Document) -> Document:
    return {name: str(Quantity.parse(amounts[name])) for name in _RECORDED if name in amounts}


def _current(metadata: Document) -> Document:
    """What the annotation says, in the form in which it is written."""
    text = (metadata.get("annotations") or {}).get(EXTENDED_RESOURCE_SPEC)
    if text is None:
        return {}
    try:
        parsed = decode_any(text)
        current: Document = to_document(convert({} if parsed is None else parsed, ExtendedResourceSpec))
    except DecodeError as error:
        raise ExtendedResourceSpecError(
            f"failed to get current extended resource spec, err: metadata.annotations[{EXTENDED_RESOURCE_SPEC}]: "
            f"{error}: leave the annotation out, since it is written at admission"
        ) from error
    return current
