"""The share of the matching objects that a profile changes."""

from __future__ import annotations

import re
from typing import Final

from koordinator.api.constraints import IntOrString
from koordinator.api.field_error import FieldError

ALWAYS: Final = 100
_PERCENT: Final = re.compile(r"([+-]?[0-9]{1,18})%")


def parse_probability(value: IntOrString | None) -> tuple[int, FieldError | None]:
    """Percent: 0 and less never, 100 and more always; and what is wrong with a text that is no percentage."""
    if value is None:
        return ALWAYS, None
    if isinstance(value, int):
        return value, None
    matched = _PERCENT.fullmatch(value)
    if matched is None:
        allowed = "must be a whole number from 0 to 100, or such a number followed by %"
        return 0, FieldError.invalid("spec.probability", value, allowed)
    return int(matched[1]), None
