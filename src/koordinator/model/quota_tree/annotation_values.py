"""The values of quota annotations: JSON, where ``null`` and an empty text mean no value, as in the original."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.codec import decode, encode
from koordinator.api.pod import ResourceList

_AMOUNTS: Final[Any] = ResourceList | None
_NAMES: Final[Any] = list[str] | None


def read_amounts(text: str) -> ResourceList:
    """Decode amounts. Raises DecodeError for anything but a JSON object of quantities."""
    found: ResourceList | None = decode(text, _AMOUNTS) if text else None
    return found or {}


def read_names(text: str) -> list[str]:
    """Decode names. Raises DecodeError for anything but a JSON list of texts."""
    found: list[str] | None = decode(text, _NAMES) if text else None
    return found or []


def write_amounts(resources: ResourceList) -> str:
    """As Go writes maps: sorted, without spaces."""
    return encode(dict(sorted(resources.items()))).decode()
