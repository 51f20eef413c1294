"""What a schema finds wrong with a value, in the words of the real server (k8s.io/kube-openapi, validation/errors)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from koordinator.cluster.resource import Cause

_GO_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_FIXED_BELOW: Final = 6
"""The order of magnitude from which on Go prints an exponent."""
NO_FIELD: Final = "<nil>"
"""What the real server prints for a path that does not exist."""


class Fault(Enum):
    """How a failure is reported."""

    REQUIRED = "Required"
    NOT_SUPPORTED = "NotSupported"
    TOO_LONG = "TooLong"
    TOO_MANY = "TooMany"
    TYPE = "Type"
    INVALID = "Invalid"
    PATHLESS = "Pathless"
    """Of a whole junctor; only the text says where."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One error. ``path`` is that of the value below the root of the schema: ``spec.a[0]``, empty for the root."""

    fault: Fault
    path: str
    text: str
    """The library's sentence; two failures with the same are one."""
    value: Any = None
    allowed: tuple[Any, ...] = ()
    limit: int = 0

    def cause(self, root: str) -> Cause:
        """``root`` is where the schema's value lies in the object: empty or ``status``."""
        name = self.path.removeprefix(".")
        field_path = f"{root}.{name}" if root and name else root or name or NO_FIELD
        match self.fault:
            case Fault.REQUIRED:
                return Cause("FieldValueRequired", field_path, "Required value")
            case Fault.NOT_SUPPORTED:
                listed = ", ".join(quoted(text if isinstance(text, str) else go_json(text)) for text in self.allowed)
                message = f"Unsupported value: {shown(self.value)}: supported values: {listed}"
                return Cause("FieldValueNotSupported", field_path, message)
            case Fault.TOO_LONG:
                unit = "byte" if self.limit == 1 else "bytes"
                return Cause("FieldValueTooLong", field_path, f"Too long: may not be more than {self.limit} {unit}")
            case Fault.TOO_MANY:
                unit = "item" if self.limit == 1 else "items"
                message = f"Too many: {self.value}: must have at most {self.limit} {unit}"
                return Cause("FieldValueTooMany", field_path, message)
            case Fault.PATHLESS:
                return Cause("FieldValueInvalid", root or NO_FIELD, f'Invalid value: "": {self.text}')
        reason = "FieldValueTypeInvalid" if self.fault is Fault.TYPE else "FieldValueInvalid"
        return Cause(
            reason, field_path, f"Invalid value: {shown('' if self.value is None else self.value)}: {self.text}"
        )


@dataclass(slots=True)
class Result:
    """The failures of one value, each once, and how much of its schema fitted: the best of several is shown."""

    failures: dict[str, Failure] = field(default_factory=dict)
    matched: int = 0

    def __iter__(self) -> Iterator[Failure]:
        return iter(self.failures.values())

    @property
    def valid(self) -> bool:
        return not self.failures

    def add(self, failures: Iterable[Failure]) -> None:
        for failure in failures:
            self.failures.setdefault(failure.text, failure)

    def merge(self, other: Result) -> None:
        self.add(other)
        self.matched += other.matched


def shown(value: Any) -> str:
    """A value in a message, as Go prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    return quoted(value) if isinstance(value, str) else go_json(value)


def quoted(text: str) -> str:
    """Go's %q."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\x7f")


def go_json(value: Any, *, order: bool = True) -> str:
    """Go's encoding/json: members in order, characters of HTML escaped; a struct's members are as they come."""
    text = json.dumps(_whole(value), ensure_ascii=False, sort_keys=order, separators=(",", ":"))
    return "".join(_GO_ESCAPES.get(character, character) for character in text)


def go_float(value: float) -> str:
    """Go's %v: the fewest digits that identify the value, with an exponent where that is small or large."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "JSON has no infinity"
    order = len(digits) + exponent - 1
    if -4 <= order < _FIXED_BELOW:
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    text = "".join(map(str, digits))
    mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
    return f"{'-' if sign else ''}{mantissa}e{order:+03d}"


def _whole(value: Any) -> Any:
    """Go's JSON writes a float without a fraction as an integer."""
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else value
