"""Quantities and semantic versions (k8s.io/apiserver, ``library/quantity.go``, ``library/semverlib.go``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import ClassVar, Final

from koordinator.api.quantity import QuantityError, parse_quantity
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, overloads
from koordinator.model.cel.values import INT_MAX, INT_MIN

_NANO: Final = 10**9
_NO_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


@dataclass(frozen=True, slots=True, order=True)
class Amount:
    """A quantity."""

    nanos: int
    cel_type: ClassVar[str] = "kubernetes.Quantity"
    cel_opaque: ClassVar[bool] = True


def amount_of(text: str) -> Amount:
    """Raises EvaluationError."""
    try:
        return Amount(parse_quantity(text).nanos)
    except QuantityError:
        raise EvaluationError(_NO_QUANTITY) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _is_integer(of: Amount) -> bool:
    return not of.nanos % _NANO and INT_MIN <= of.nanos // _NANO <= INT_MAX


def _as_integer(of: Amount) -> int:
    if not _is_integer(of):
        raise EvaluationError("cannot convert value to integer")
    return of.nanos // _NANO


def compared(left: Amount | Version, right: Amount | Version) -> int:
    return int(left > right) - int(left < right)  # type: ignore[operator]


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version; what is built of it (``+…``) has no order."""

    numbers: tuple[int, int, int]
    prerelease: tuple[str, ...]
    cel_type: ClassVar[str] = "kubernetes.Semver"
    cel_opaque: ClassVar[bool] = True

    def __lt__(self, other: Version) -> bool:
        return (self.numbers, self._rank()) < (other.numbers, other._rank())

    def _rank(self) -> tuple[bool, tuple[tuple[bool, int, str], ...]]:
        """A release comes after its pre-releases; numbers come before words."""
        parts = ((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in self.prerelease)
        return not self.prerelease, tuple(parts)


def _parsed(text: str, normalize: bool = False) -> Version | None:
    found = _VERSION.fullmatch(_normalized(text) if normalize else text) if len(text) <= 1000 else None
    if found is None:
        return None
    major, minor, patch, prerelease = found.groups()
    parts = tuple(prerelease.split(".")) if prerelease else ()
    if any(part.isdecimal() and len(part) > 1 and part[0] == "0" for part in parts):
        return None
    return Version((int(major), int(minor), int(patch)), parts)


def _normalized(text: str) -> str:
    """Without a leading ``v`` and leading zeros, and with all three numbers."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_zeros(part: str) -> str:
    stripped = part.lstrip("0") if len(part) > 1 else part
    return stripped if stripped[:1].isdecimal() else f"0{stripped}" if len(part) > 1 else part


def version_of(text: str, normalize: bool = False) -> Version:
    """Raises EvaluationError."""
    found = _parsed(text, normalize)
    if found is None:
        text = _normalized(text) if normalize else text
        numbers = text.split("+")[0].split("-")[0].split(".")
        if len(numbers) < 3:
            raise EvaluationError("No Major.Minor.Patch elements found")
        wrong = next((part for part in numbers if not part.isdecimal()), text)
        raise EvaluationError(f'Invalid character(s) found in major number "{wrong}"')
    return found


_TYPE: Final = "kubernetes.Quantity"
_SEMVER: Final = "kubernetes.Semver"
QUANTITIES: Final[list[Overload]] = overloads((
    ("string_to_quantity", f"quantity(string): {_TYPE}", amount_of),
    ("is_quantity_string", "isQuantity(string): bool", _is_quantity),
    ("quantity_sign", f"{_TYPE}->sign(): int", lambda of: (of.nanos > 0) - (of.nanos < 0)),
    ("quantity_is_greater_than", f"{_TYPE}->isGreaterThan({_TYPE}): bool", lambda of, other: of > other),
    ("quantity_is_less_than", f"{_TYPE}->isLessThan({_TYPE}): bool", lambda of, other: of < other),
    ("quantity_compare_to", f"{_TYPE}->compareTo({_TYPE}): int", compared),
    ("quantity_get_float", f"{_TYPE}->asApproximateFloat(): double", lambda of: of.nanos / _NANO),
    ("quantity_get_int", f"{_TYPE}->asInteger(): int", _as_integer),
    ("quantity_is_integer", f"{_TYPE}->isInteger(): bool", _is_integer),
    ("quantity_add", f"{_TYPE}->add({_TYPE}): {_TYPE}", lambda of, other: Amount(of.nanos + other.nanos)),
    ("quantity_add_int", f"{_TYPE}->add(int): {_TYPE}", lambda of, other: Amount(of.nanos + other * _NANO)),
    ("quantity_sub", f"{_TYPE}->sub({_TYPE}): {_TYPE}", lambda of, other: Amount(of.nanos - other.nanos)),
    ("quantity_sub_int", f"{_TYPE}->sub(int): {_TYPE}", lambda of, other: Amount(of.nanos - other * _NANO)),
    ("string_to_semver", f"semver(string): {_SEMVER}", version_of),
    ("string_bool_to_semver", f"semver(string, bool): {_SEMVER}", version_of),
    ("is_semver_string", "isSemver(string): bool", lambda text: _parsed(text) is not None),
    ("is_semver_string_bool", "isSemver(string, bool): bool", lambda text, normal: _parsed(text, normal) is not None),
    ("semver_is_greater_than", f"{_SEMVER}->isGreaterThan({_SEMVER}): bool", lambda of, other: of > other),
    ("semver_is_less_than", f"{_SEMVER}->isLessThan({_SEMVER}): bool", lambda of, other: of < other),
    ("semver_compare_to", f"{_SEMVER}->compareTo({_SEMVER}): int", compared),
    ("semver_major", f"{_SEMVER}->major(): int", lambda of: of.numbers[0]),
    ("semver_minor", f"{_SEMVER}->minor(): int", lambda of: of.numbers[1]),
    ("semver_patch", f"{_SEMVER}->patch(): int", lambda of: of.numbers[2]),
))  # fmt: skip
