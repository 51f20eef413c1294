"""Kubernetes resource quantities: parsed, rounded and printed as the API server does.

A quantity is an exact decimal with at most nine fractional digits; what the text says below a nano is rounded away
from zero, what a text with a binary suffix says above 2**63-1 is cut (k8s.io/apimachinery, pkg/api/resource).
Decoding yields shared, immutable values, since a cluster repeats the same few hundred texts in a hundred thousand
places.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final

from koordinator.base.errors import KoordinatorError

_NANO: Final = 10**9
_MAX_INT64: Final = 2**63 - 1
_LIMIT_EXPONENT: Final = 64
_LIMIT: Final = 10**_LIMIT_EXPONENT
_LONGEST: Final = 1000
"""Characters; Python refuses to read numbers of more than some thousand digits."""
_SHOWN: Final = 50
_PATTERN: Final = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*(?:[+-]?[0-9]*))")
_READING: Final = re.compile(r"[1-9][0-9]{0,14}m?")
"""How agents write what they measure: hardly two readings are alike, and a node with its pods has sixty of them."""
_MILLIS: Final = re.compile(r"[0-9]{1,15}m")
_BYTES: Final = re.compile(r"([0-9]{1,15})(Ki)?")
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]{1,18})")
_DECIMAL_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES: Final = ("", *_BINARY_EXPONENTS)
_KEPT_DECIMAL_DIGITS: Final = 18
_KEPT_BINARY_DIGITS: Final = {10: 11, 20: 8, 30: 5, 40: 2}
"""Power of two -> how many digits before it client-go still holds in an int64."""


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
    """An exact amount.

    ``value`` and ``milli`` are integers, rounded away from zero as client-go's accessors do, and held within 64 bits
    (where client-go's wrap around or become 0). ``nanos`` is exact up to 10**64.
    """

    __slots__ = ("_text", "format", "milli", "nanos", "value")

    nanos: int
    milli: int
    value: int
    format: Format

    def __init__(self, nanos: int, quantity_format: Format = Format.DECIMAL_SI, text: str | None = None) -> None:
        self.nanos = nanos
        self.format = quantity_format
        if 0 <= nanos <= _MAX_INT64:
            # Nearly all are; each call would take as long as one of these lines.
            self.milli = -(-nanos // 1_000_000)
            self.value = -(-nanos // _NANO)
        else:
            self.milli = _within_int64(_divide_away_from_zero(nanos, 1_000_000))
            self.value = _within_int64(_divide_away_from_zero(nanos, _NANO))
        self._text = text

    @classmethod
    def parse(cls, text: str | float) -> Quantity:
        """Read a quantity from a JSON string or number; equal texts give the same object. Raises QuantityError."""
        return parse_quantity(text if isinstance(text, str) else repr(text))

    @classmethod
    def from_milli(cls, milli: int, quantity_format: Format = Format.DECIMAL_SI) -> Quantity:
        return cls(milli * 1_000_000, quantity_format)

    @classmethod
    def from_value(cls, value: int, quantity_format: Format = Format.DECIMAL_SI) -> Quantity:
        return cls(value * _NANO, quantity_format)

    def round_up_to_milli(self) -> Quantity:
        """What the API server stores in a resource list: nothing finer than a thousandth."""
        milli = _divide_away_from_zero(self.nanos, 1_000_000)
        return self if milli * 1_000_000 == self.nanos else Quantity.from_milli(milli, self.format)

    def __str__(self) -> str:
        """The canonical text: the largest suffix that leaves no fraction; a text that client-go keeps, as it was."""
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


class MilliCPU(int):
    """A quantity of CPU of which only the whole milli-CPU are read, as readings of usage are: hardly two of them are
    alike, so that a Quantity of each would cost more than all that is made of it."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> MilliCPU:
        """The ``milli`` of the quantity. Raises QuantityError."""
        return cls(text[:-1] if _MILLIS.fullmatch(text) else parse_quantity(text).milli)


class Bytes(int):
    """The same of memory, in whole bytes."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Bytes:
        """The ``value`` of the quantity. Raises QuantityError."""
        matched = _BYTES.fullmatch(text)
        if matched is None:
            return cls(parse_quantity(text).value)
        return cls(matched[1]) if matched[2] is None else cls(int(matched[1]) << 10)


def _divide_away_from_zero(value: int, by: int) -> int:
    return -(-value // by) if value >= 0 else value // by


def _within_int64(value: int) -> int:
    return max(-_MAX_INT64 - 1, min(value, _MAX_INT64))


@lru_cache(maxsize=16_384)
def parse_quantity(text: str) -> Quantity:
    """``Quantity.parse`` for texts alone, for the path that runs a hundred times for each object decoded."""
    if _READING.fullmatch(text):
        whole, unit = (text[:-1], 1_000_000) if text[-1] == "m" else (text, _NANO)
        return Quantity(int(whole) * unit, Format.DECIMAL_SI, None if whole.endswith("000") else text)
    if len(text) > _LONGEST:
        raise QuantityError(f"{text[:_SHOWN]}… ({len(text)} characters)")
    stripped = text.strip()
    matched = _PATTERN.fullmatch(stripped)
    if matched is None or not stripped:
        raise QuantityError(text)
    sign, whole, _, fraction, suffix = matched.groups(default="")
    quantity_format, two, ten = _suffix(text, suffix)
    whole = whole.lstrip("0") or "0"
    if not _is_small(whole, fraction, two, ten) and not matched[2] and not fraction:
        # Without a digit client-go reads a zero, but only where it gets by with an int64.
        raise QuantityError(text)
    nanos = _nanos(whole, fraction, quantity_format, two, ten)
    kept = nanos != 0 and _is_kept(whole, fraction, two, ten)
    if quantity_format is Format.BINARY_SI and 0 < nanos < _NANO:
        quantity_format = Format.DECIMAL_SI
    return Quantity(-nanos if sign == "-" else nanos, quantity_format, stripped if kept else None)


def _suffix(text: str, suffix: str) -> tuple[Format, int, int]:
    """The format, the power of two and the power of ten that a suffix stands for."""
    if suffix in _DECIMAL_EXPONENTS:
        return Format.DECIMAL_SI, 0, _DECIMAL_EXPONENTS[suffix]
    if suffix in _BINARY_EXPONENTS:
        return Format.BINARY_SI, _BINARY_EXPONENTS[suffix], 0
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise QuantityError(text)
    return Format.DECIMAL_EXPONENT, 0, int(exponent[1])


def _nanos(whole: str, fraction: str, quantity_format: Format, two: int, ten: int) -> int:
    nanos = _scale(int(whole + fraction) << two, ten + 9 - len(fraction))
    return min(nanos, _MAX_INT64 * _NANO) if quantity_format is Format.BINARY_SI else nanos


def _scale(digits: int, ten: int) -> int:
    """``digits`` times a power of ten, rounded up, and cut at the limit without computing absurd powers."""
    if digits == 0:
        return 0
    if ten >= 0:
        return min(digits * int(10 ** min(ten, _LIMIT_EXPONENT)), _LIMIT)
    # A divisor longer than the number itself leaves a fraction of one: rounded up to one.
    return min(-(-digits // int(10 ** min(-ten, len(str(digits)) + 1))), _LIMIT)


def _is_small(whole: str, fraction: str, two: int, ten: int) -> bool:
    """Whether client-go reads the text into an int64 and a scale, without arbitrary precision."""
    if two:
        return not fraction and len(whole) <= _KEPT_BINARY_DIGITS.get(two, 0)
    return len(whole) + len(fraction) <= _KEPT_DECIMAL_DIGITS and ten - len(fraction) >= -9


def _is_kept(whole: str, fraction: str, two: int, ten: int) -> bool:
    """Whether client-go takes the text for canonical, by its digits alone: so also ``+1``, ``1.500`` and ``01``."""
    if not _is_small(whole, fraction, two, ten):
        return False
    if two:
        return int(whole) % 8 != 0
    return whole != "0" and (ten - len(fraction)) % 3 == 0 and not (whole + fraction).endswith("000")


def _print(nanos: int, quantity_format: Format) -> str:
    if nanos == 0:
        return "0"
    sign, amount = ("-", -nanos) if nanos < 0 else ("", nanos)
    if quantity_format is Format.BINARY_SI and amount % _NANO == 0 and amount // _NANO >= 1024:
        return sign + _print_binary(amount // _NANO)
    largest = _LIMIT_EXPONENT if quantity_format is Format.DECIMAL_EXPONENT else 18
    exponent = -9
    while exponent < largest and amount % 1000 == 0:
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
