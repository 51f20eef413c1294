"""Errors of fields, in the real server's words (k8s.io/apimachinery, field.Error)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from koordinator.cluster.resource import Cause


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", field, _join("Required value", detail))


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", field, _join(f"Invalid value: {_shown(value)}", detail))


def forbidden(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", field, _join("Forbidden", detail))


def duplicate(field: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def not_supported(field: str, value: Any, allowed: Sequence[str]) -> Cause:
    listed = ", ".join(f'"{text}"' for text in allowed)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {listed}")


def not_found(field: str, value: Any) -> Cause:
    return Cause("FieldValueNotFound", field, f"Not found: {_shown(value)}")


def too_long(field: str, limit: int) -> Cause:
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def go_quoted(text: str) -> str:
    """A text as Go's %q prints it."""
    escapes = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    escapes |= {"\\": "\\\\", '"': '\\"'}
    return '"' + "".join(escapes.get(part) or (part if part.isprintable() else _escaped(part)) for part in text) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _join(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
