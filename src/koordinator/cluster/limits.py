"""The limits of what a client may send or create: a request beyond one is refused before it costs anything."""

from __future__ import annotations

from typing import Any, Final

MAX_BODY: Final = 3 << 20
"""Bytes of a request body, of what the copies of a JSON patch add, and of an object; the real server's limit."""
MAX_DEPTH: Final = 128
"""Levels of objects and lists within each other. The real server takes 10,000, which no kind comes near; whatever walks
a document here does so by recursion, and has the stack for these."""
MAX_PATCH_OPERATIONS: Final = 10_000
"""Of one JSON patch; the real server's limit."""
TOO_DEEP: Final = f"exceeded max depth of {MAX_DEPTH}"


def is_too_deep(document: Any) -> bool:
    """Whether a JSON value has more levels of objects and lists than MAX_DEPTH."""
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = [item for container in level for item in _containers_in(container)]
        if not level:
            return False
    return True


def _containers_in(value: Any) -> list[Any]:
    items = value.values() if type(value) is dict else value if type(value) is list else ()
    return [item for item in items if type(item) is dict or type(item) is list]
