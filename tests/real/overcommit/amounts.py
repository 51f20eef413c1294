"""Kubernetes' amounts as the tests read them, apart from the reading of the programs that they compare."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_AMOUNT: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_FACTORS: Final = {
    **{name: Fraction(1, 1000**power) for power, name in enumerate("mun", 1)},
    **{name: Fraction(1000**power) for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Fraction(1024**power) for power, name in enumerate("KMGTPE", 1)},
}


def amount(text: str) -> Fraction:
    """What a quantity comes to (apimachinery's grammar of ``resource.Quantity``). Raises ValueError."""
    parts = _AMOUNT.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r} is no amount")
    number, exponent, suffix = parts.groups()
    value = Fraction(number)
    return value * Fraction(10) ** int(exponent) if exponent else value * _FACTORS.get(suffix or "", 1)
