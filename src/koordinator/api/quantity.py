"""Kubernetes resource quantities: parsed, rounded and printed as the API server does.

A quantity is an exact decimal with at most nine fractional digits; what the text says below a nano is rounded away
from zero, what it says above 2**63-1 is cut (k8s.io/apimachinery, pkg/api/resource). Decoding yields shared,
immutable values, since a cluster repeats the same few hundred texts in a hundred thousand places.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final

from koordinator.base.errors import KoordinatorError

_NANO: Final = 10**9
_MAX_NANOS: Final = (2**63 - 1) * _NANO
_PATTERN: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([A-Za-z]*)([+-]?[0-9]*)")
_DECIMAL_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES: Final = ("", *_BINARY_EXPONENTS)
_MAX_EXPONENT_DIGITS: Final = 9


class QuantityError(KoordinatorError, ValueError):
    """A text that is no quantity."""

    def __init__(self, text: object) -> None:
        super().__init__(
            f"{text!r} is not a quantity: write a number with an optional suffix "
            "(n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3)"
        )


class Format(Enum):
    """How a quantity prints; part of the text that it came from."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


class Quantity:
    """An exact amount. ``value`` and ``milli`` are integers, rounded away from zero as client-go's accessors do."""

    __slots__ = ("_text", "format", "milli", "nanos", "value")

    nanos: int
    milli: int
    value: int
    format: Format

    def __init__(self, nanos: int, quantity_format: Format = Format.DECIMAL_SI) -> None:
        self.nanos = nanos
        self.format = quantity_format
        self.milli = _divide_away_from_zero(nanos, 1_000_000)
        self.value = _divide_away_from_zero(nanos, _NANO)
        self._text: str | None = None

    @classmethod
    def parse(cls, text: str | float) -> Quantity:
        """Read a quantity from a JSON string or number; equal texts give the same object. Raises QuantityError."""
        return _parse(text if isinstance(text, str) else repr(text))

    @classmethod
    def from_milli(cls, milli: int, quantity_format: Format = Format.DECIMAL_SI) -> Quantity:
        return cls(milli * 1_000_000, quantity_format)

    @classmethod
    def from_value(cls, value: int, quantity_format: Format = Format.DECIMAL_SI) -> Quantity:
        return cls(value * _NANO, quantity_format)

    def round_up_to_milli(self) -> Quantity:
        """What the API server stores in a resource list: nothing finer than a thousandth."""
        return self if self.milli * 1_000_000 == self.nanos else Quantity.from_milli(self.milli, self.format)

    def __str__(self) -> str:
        """The canonical text: the largest suffix that leaves no fraction."""
        if self._text is None:
            self._text = _print(self.nanos, self.format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __bool__(self) -> bool:
        return self.nanos != 0


def _divide_away_from_zero(value: int, by: int) -> int:
    return -(-value // by) if value >= 0 else value // by


@lru_cache(maxsize=65_536)
def _parse(text: str) -> Quantity:
    matched = _PATTERN.fullmatch(text.strip())
    if matched is None:
        raise QuantityError(text)
    sign, whole, fraction, letters, exponent_digits = matched.groups()
    if not whole and not fraction:
        raise QuantityError(text)
    quantity_format, two, ten = _suffix(text, letters, exponent_digits)
    digits = int(whole + (fraction or "") or "0") << two
    nanos = _scale(digits, ten + 9 - len(fraction or ""))
    nanos = min(nanos, _MAX_NANOS)
    if quantity_format is Format.BINARY_SI and 0 < nanos < _NANO:
        quantity_format = Format.DECIMAL_SI
    return Quantity(-nanos if sign == "-" else nanos, quantity_format)


def _suffix(text: str, letters: str, exponent_digits: str) -> tuple[Format, int, int]:
    """The format, the power of two and the power of ten that a suffix stands for."""
    if exponent_digits:
        if letters not in ("e", "E") or not exponent_digits.lstrip("+-"):
            raise QuantityError(text)
        if len(exponent_digits) > _MAX_EXPONENT_DIGITS:
            raise QuantityError(text)
        return Format.DECIMAL_EXPONENT, 0, int(exponent_digits)
    if letters in _DECIMAL_EXPONENTS:
        return Format.DECIMAL_SI, 0, _DECIMAL_EXPONENTS[letters]
    if letters in _BINARY_EXPONENTS:
        return Format.BINARY_SI, _BINARY_EXPONENTS[letters], 0
    raise QuantityError(text)


def _scale(digits: int, ten: int) -> int:
    if digits == 0:
        return 0
    if ten >= 0:
        # Anything above 10**40 is cut to the maximum anyway; do not compute absurd powers for it.
        return digits * int(10 ** min(ten, 40))
    # A divisor longer than the number itself leaves a fraction of one: rounded up to one.
    return -(-digits // int(10 ** min(-ten, len(str(digits)) + 1)))


def _print(nanos: int, quantity_format: Format) -> str:
    if nanos == 0:
        return "0"
    sign, amount = ("-", -nanos) if nanos < 0 else ("", nanos)
    if quantity_format is Format.BINARY_SI and amount % _NANO == 0 and amount // _NANO >= 1024:
        return sign + _print_binary(amount // _NANO)
    exponent = -9
    while exponent < 18 and amount % 1000 == 0:
        amount //= 1000
        exponent += 3
    if quantity_format is Format.DECIMAL_EXPONENT:
        return f"{sign}{amount}e{exponent}" if exponent else f"{sign}{amount}"
    return f"{sign}{amount}{_DECIMAL_SUFFIXES[exponent]}"


def _print_binary(amount: int) -> str:
    power = 0
    while power < len(_BINARY_SUFFIXES) - 1 and amount % 1024 == 0:
        amount //= 1024
        power += 1
    return f"{amount}{_BINARY_SUFFIXES[power]}"
