"""Parsing of debug flags as Go's strconv does it, and the debug flag that all programs have: log verbosity."""

from __future__ import annotations

import logging
import re
from typing import Final

from koordinator.base.logs import verbosity

SIGNED: Final = re.compile(r"[+-]?[0-9]+")
_UNSIGNED: Final = re.compile(r"[0-9]+")
_DIGITS_LIMIT: Final = 400
"""Longer numbers are out of range anyway; reading them would only take time."""
_LEVEL: Final = range(2**31)


def number(text: str, allowed: range, who: str, syntax: re.Pattern[str] = SIGNED) -> int:
    """Return the number. Raises ValueError with the message of Go's function ``who``, which it begins with."""
    if not syntax.fullmatch(text):
        raise ValueError(f'{who}: parsing "{text}": invalid syntax')
    if len(text) > _DIGITS_LIMIT or int(text) not in allowed:
        raise ValueError(f'{who}: parsing "{text}": value out of range')
    return int(text)


def set_verbosity(text: str) -> str:
    """Set the log level as ``-v`` does. Returns the response body of the original; raises ValueError."""
    logging.getLogger().setLevel(verbosity(number(text, _LEVEL, "strconv.ParseUint", _UNSIGNED)))
    return f"successfully set klog.logging.verbosity to {text}"
