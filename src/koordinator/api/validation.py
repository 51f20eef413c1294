"""Checks objects against what their types say is allowed, and reports every field that is wrong.

That is what an API server enforces by the CRD, plus what a program needs to make sense of the object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from koordinator.api.constraints import NO_SCHEMA, Schema
from koordinator.api.field_error import FieldError, child_path
from koordinator.api.semantic_checks import SEMANTIC_CHECKS
from koordinator.api.struct_fields import StructField, struct_fields


def validate(struct: msgspec.Struct, path: str = "") -> list[FieldError]:
    """Everything about the object that its kind does not allow; ``path`` is put before the fields' own."""
    return list(_walk(struct, path))


def _walk(struct: msgspec.Struct, path: str) -> Iterator[FieldError]:
    yield from _schema_errors(struct, path)
    for field in struct_fields(type(struct)):
        if not field.schema.schemaless and not field.schema.preserve_unknown_fields:
            yield from _walk_value(getattr(struct, field.name), child_path(path, field.wire_name))


def _walk_value(value: Any, path: str) -> Iterator[FieldError]:
    if isinstance(value, msgspec.Struct):
        yield from _walk(value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk_value(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk_value(item, f"{path}[{key}]")


def _schema_errors(struct: msgspec.Struct, path: str) -> Iterator[FieldError]:
    rules: Schema = getattr(struct, "struct_schema", NO_SCHEMA)
    if rules.min_properties is not None and _given(struct) < rules.min_properties:
        yield FieldError.invalid(path, {}, f"must have at least {rules.min_properties} field set")
    for field in struct_fields(type(struct)):
        value = getattr(struct, field.name)
        error = _field_error(field, value, child_path(path, field.wire_name))
        if error is not None:
            yield error
    semantic = SEMANTIC_CHECKS.get(type(struct))
    if semantic is not None:
        yield from semantic(struct, path)


def _field_error(field: StructField, value: Any, path: str) -> FieldError | None:
    rules = field.schema
    if value is None or value == "":
        missing = rules.required and not (rules.may_be_empty and value == "")
        return FieldError.required(path) if missing else None
    if isinstance(value, str):
        return _text_error(rules, value, path)
    if isinstance(value, int) and not _in_bounds(value, rules.minimum, rules.maximum):
        return FieldError.invalid(path, value, _bounds(rules.minimum, rules.maximum))
    if isinstance(value, list) and len(value) < (rules.min_items or 0):
        return FieldError.required(path, f"must have at least {rules.min_items} item")
    return None


def _text_error(rules: Schema, value: str, path: str) -> FieldError | None:
    if rules.enum and value not in rules.enum:
        return FieldError.not_supported(path, value, rules.enum)
    if rules.max_length is not None and len(value) > rules.max_length:
        return FieldError.invalid(path, value[:32] + "…", f"must have at most {rules.max_length} characters")
    if rules.pattern is not None and not _compiled(rules.pattern).search(value):
        return FieldError.invalid(path, value, f"must match {rules.pattern}")
    return None


def _given(struct: msgspec.Struct) -> int:
    return sum(getattr(struct, field.name) != field.default for field in struct_fields(type(struct)))


def _in_bounds(value: int, minimum: int | None, maximum: int | None) -> bool:
    return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)


def _bounds(minimum: int | None, maximum: int | None) -> str:
    if maximum is None:
        return f"must be {minimum} or greater"
    return f"must be {maximum} or less" if minimum is None else f"must be from {minimum} to {maximum}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
