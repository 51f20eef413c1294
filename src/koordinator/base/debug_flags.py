"""Values of debug flags as Go's strconv reads them, and the one that all programs have: how much to log."""

from __future__ import annotations

import logging
import re
from typing import Final

from koordinator.base.logs import verbosity

SIGNED: Final = re.compile(r"[+-]?[0-9]+")
_UNSIGNED: Final = re.compile(r"[0-9]+")
_DIGITS_LIMIT: Final = 400
"""Longer numbers are out of any range, and not worth the time to read."""
_LEVEL: Final = range(2**31)


def number(text: str, allowed: range, who: str, syntax: re.Pattern[str] = SIGNED) -> int:
    """Raises ValueError with Go's words, which begin with ``who`` could not read the text."""
    if not syntax.fullmatch(text):
        raise ValueError(f'{who}: parsing "{text}": invalid syntax')
    if len(text) > _DIGITS_LIMIT or int(text) not in allowed:
        raise ValueError(f'{who}: parsing "{text}": value out of range')
    return int(text)


def set_verbosity(text: str) -> str:
    """Log as much as ``-v`` with this value would. Returns what the original answers; raises ValueError."""
    logging.getLogger().setLevel(verbosity(number(text, _LEVEL, "strconv.ParseUint", _UNSIGNED)))
    return f"successfully set klog.logging.verbosity to {text}"
