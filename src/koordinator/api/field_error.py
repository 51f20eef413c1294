"""What a validation says about one field: where it is, what it holds, what is allowed there.

The texts have the form of Kubernetes' own field errors, so that they read alike in Status causes, conditions, events
and on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from koordinator.base.errors import KoordinatorError


class FieldErrorReason(StrEnum):
    """The reason of a Status cause."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    DUPLICATE = "FieldValueDuplicate"


_TITLES = {
    FieldErrorReason.INVALID: "Invalid value",
    FieldErrorReason.REQUIRED: "Required value",
    FieldErrorReason.NOT_SUPPORTED: "Unsupported value",
    FieldErrorReason.FORBIDDEN: "Forbidden",
    FieldErrorReason.DUPLICATE: "Duplicate value",
}
_WITHOUT_VALUE = frozenset({FieldErrorReason.REQUIRED, FieldErrorReason.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field. ``allowed`` says what may stand there."""

    path: str
    value: Any
    allowed: str
    reason: FieldErrorReason = FieldErrorReason.INVALID

    @classmethod
    def invalid(cls, path: str, value: Any, allowed: str) -> FieldError:
        return cls(path, value, allowed)

    @classmethod
    def required(cls, path: str, allowed: str = "") -> FieldError:
        return cls(path, None, allowed, FieldErrorReason.REQUIRED)

    @classmethod
    def not_supported(cls, path: str, value: Any, supported: Iterable[str]) -> FieldError:
        allowed = "supported values: " + ", ".join(f'"{choice}"' for choice in supported)
        return cls(path, value, allowed, FieldErrorReason.NOT_SUPPORTED)

    @classmethod
    def forbidden(cls, path: str, why: str) -> FieldError:
        return cls(path, None, why, FieldErrorReason.FORBIDDEN)

    @property
    def message(self) -> str:
        """Without the path, as a Status cause carries it."""
        title = _TITLES[self.reason]
        if self.reason not in _WITHOUT_VALUE:
            title = f"{title}: {_show(self.value)}"
        return f"{title}: {self.allowed}" if self.allowed else title

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidFieldError(KoordinatorError, ValueError):
    """A value that cannot be used, for callers that report only the first error."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


def child_path(path: str, name: str) -> str:
    """The path of a field within the struct at ``path``; the empty path is the object itself."""
    return f"{path}.{name}" if path else name


def _show(value: Any) -> str:
    """As JSON, for those who compare it with their manifest."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError):
        return repr(value)
