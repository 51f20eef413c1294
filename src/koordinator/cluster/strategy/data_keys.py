"""What ConfigMaps and Secrets have in common: their keys are file names, they are small, and they may be immutable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid

MAX_SIZE: Final = 1024 * 1024
"""Bytes of all values of one object together."""
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_LONGEST_KEY: Final = 253
_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
    "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_IMMUTABLE: Final = "field is immutable when `immutable` is set"


def check_key(field: str, key: str) -> list[Cause]:
    """What is wrong with one key of ``field``."""
    complaints = [f"must be no more than {_LONGEST_KEY} characters"] if len(key.encode()) > _LONGEST_KEY else []
    if not _KEY.fullmatch(key):
        complaints.append(_RULE)
    if key in (".", ".."):
        complaints.append(f"must not be '{key}'")
    elif key.startswith(".."):
        complaints.append("must not start with '..'")
    return [invalid(f"{field}[{key}]", key, complaint) for complaint in complaints]


def check_immutable(obj: Document, old: Document | None, fields: Iterable[str]) -> list[Cause]:
    """Once ``immutable`` is set, neither it nor any of ``fields`` changes."""
    if old is None or not old.get("immutable"):
        return []
    changed = [] if obj.get("immutable") else ["immutable"]
    changed += [field for field in fields if (obj.get(field) or {}) != (old.get(field) or {})]
    return [forbidden(field, _IMMUTABLE) for field in changed]


def size_of_bytes(encoded: str) -> int:
    """Of canonical base64, without decoding it."""
    return len(encoded) // 4 * 3 - encoded[-2:].count("=")
