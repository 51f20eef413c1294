"""The annotation that says how what nobody is guaranteed is shared between quotas."""

from __future__ import annotations

from typing import Any

from koordinator.api.codec import decode
from koordinator.api.pod import ResourceList


def read_weights(text: str) -> ResourceList:
    """Raises DecodeError for what is no JSON object of quantities."""
    # The original writes null for a quota without max.
    expected: Any = ResourceList | None
    weights: ResourceList | None = decode(text, expected)
    return weights or {}
