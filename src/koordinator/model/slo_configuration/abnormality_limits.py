"""How long an error must last before a node counts as abnormal, and the configuration of that.

The limits are in the extension part of a colocation strategy, under ``extensions``, since they are not part of
Koordinator's own fields; they may differ between groups of nodes and on a single node as all fields of a strategy may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

import msgspec

from koordinator.api.codec import DecodeError, convert
from koordinator.api.field_error import FieldError
from koordinator.api.meta import WireStruct

EXTENSION: Final = "abnormalNodes"
"""The key among the strategy's ``extensions``."""


@dataclass(frozen=True, slots=True)
class AbnormalityLimits:
    enable: bool = True
    missing_after: timedelta = timedelta(minutes=5)
    """How long a node may be without a first report, and how long a process watches before it detects that."""
    raise_after: timedelta = timedelta(minutes=5)
    """How long usage may be above capacity or below zero, from report to report."""
    clear_after: timedelta = timedelta(minutes=5)
    """How long reports must have been sound before a node is normal again."""
    frozen_after: timedelta = timedelta(minutes=30)
    frozen_reports: int = 10
    """How many equal reports in a row, at least, over that time."""
    clock_difference: timedelta = timedelta(minutes=5)
    """By how much a node's clock may be ahead."""
    tolerated_percent: int = 5
    """By how much usage may be above capacity, since both are measured."""


DEFAULT_LIMITS: Final = AbnormalityLimits()

_Seconds = Annotated[int, msgspec.Meta(ge=1, le=7 * 86_400)]


class _Written(WireStruct):
    """The extension in the form in which users write it."""

    enable: bool | None = None
    missing_after_seconds: _Seconds | None = None
    raise_after_seconds: _Seconds | None = None
    clear_after_seconds: _Seconds | None = None
    frozen_after_seconds: _Seconds | None = None
    clock_difference_seconds: _Seconds | None = None
    tolerated_percent: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None


_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(_Written))


def abnormality_limits(extensions: Mapping[str, Any]) -> AbnormalityLimits:
    """The limits of a strategy without errors."""
    document = extensions.get(EXTENSION)
    return DEFAULT_LIMITS if document is None else _limits(convert(document, _Written))


def abnormality_errors(extensions: Mapping[str, Any]) -> list[FieldError]:
    """The errors for which the limits, and with them the strategy, are unusable."""
    document = extensions.get(EXTENSION)
    if document is None:
        return []
    at = f"extensions.{EXTENSION}"
    if isinstance(document, dict) and (unknown := sorted(set(document) - _FIELDS)):
        return [FieldError.not_supported(f"{at}.{unknown[0]}", unknown[0], sorted(_FIELDS))]
    try:
        convert(document, _Written)
    except DecodeError as error:
        return [FieldError.invalid(at, document, str(error))]
    return []


def _limits(written: _Written) -> AbnormalityLimits:
    given: dict[str, Any] = {}
    for field, value in msgspec.structs.asdict(written).items():
        if value is None:
            continue
        if field.endswith("_seconds"):
            given[field.removesuffix("_seconds")] = timedelta(seconds=value)
        else:
            given[field] = value
    return AbnormalityLimits(**given)
