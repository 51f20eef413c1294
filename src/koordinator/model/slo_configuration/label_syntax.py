"""What a label may look like (apimachinery, IsQualifiedName and IsValidLabelValue): other selectors are mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NAME_LENGTH: Final = 63
_PREFIX_LENGTH: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE: Final = (
    f"at most {_NAME_LENGTH} letters, digits, '-', '_' and '.', of which the first and last are a letter or digit"
)


def check_label(key: str, values: Iterable[str]) -> str | None:
    """What is wrong with a label's key or any of its values; None when nothing is."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _PREFIX_LENGTH and _SUBDOMAIN.fullmatch(prefix)):
        return f"{key!r} is not a label: before the '/' must be a DNS subdomain such as example.com"
    if not _is_name(name):
        return f"{key!r} is not a label: its name must be {_NAME_RULE}"
    for value in values:
        if value and not _is_name(value):
            return f"{value!r} is not a value of the label {key!r}: it must be empty or {_NAME_RULE}"
    return None


def _is_name(text: str) -> bool:
    return len(text) <= _NAME_LENGTH and _NAME.fullmatch(text) is not None
