"""Regular expressions, in Go's syntax; the library takes linear time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from koordinator.model.cel.budget import Meter
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, overloads

_LONGEST: Final = 10_000
"""Characters of a pattern."""


class PatternError(Exception):
    """A text that is no pattern."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Raises PatternError."""
    # Brought by the extra "koord" alone, and only servers that evaluate expressions need it.
    import re2

    if len(pattern) > _LONGEST:
        raise PatternError(f"a pattern may have at most {_LONGEST} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error.args[0])
        raise PatternError(f"error parsing regexp: {said}") from None


def _pattern(text: str, prefix: str = "") -> Any:
    try:
        return compiled(text)
    except PatternError as error:
        raise EvaluationError(f"{prefix}{error}") from None


def matches(text: str, pattern: str) -> bool:
    return _pattern(pattern).search(text) is not None


def _find(meter: Meter, text: str, pattern: str) -> str:
    found = _pattern(pattern, "Illegal regex: ").search(text)
    return "" if found is None else str(found[0])


def _find_all(meter: Meter, text: str, pattern: str, limit: int = -1) -> list[str]:
    found: list[str] = []
    for match in _pattern(pattern, "Illegal regex: ").finditer(text) if limit else ():
        meter.labour(4)
        found.append(match[0])
        if len(found) == limit:
            break
    return found


PATTERNS: Final[list[Overload]] = overloads(
    (
        ("string_find_string", "string->find(string): string", _find),
        ("string_find_all_string", "string->findAll(string): list(string)", _find_all),
        ("string_find_all_string_int", "string->findAll(string, int): list(string)", _find_all),
    ),
    metered=True,
)
