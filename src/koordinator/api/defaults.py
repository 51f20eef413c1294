"""Fills in what an API server fills in: the defaults that the schema of a custom kind gives.

An object that was read from an API server has them already; one that was read from a file has not.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from koordinator.api.constraints import UNSET
from koordinator.api.duration import GoDuration
from koordinator.api.struct_fields import StructField, struct_fields

S = TypeVar("S", bound=msgspec.Struct)


def with_defaults(struct: S) -> S:
    """The struct with every unset field that has a default set to it, at all depths; itself when nothing is missing.

    As in an API server, a struct that is not there is not created to hold defaults.
    """
    changes = {}
    for field in struct_fields(type(struct)):
        current = getattr(struct, field.name)
        wanted = _filled(field, current)
        if wanted is not current:
            changes[field.name] = wanted
    return msgspec.structs.replace(struct, **changes) if changes else struct


def _filled(field: StructField, current: Any) -> Any:
    if field.schema.schemaless:
        return current
    if field.schema.default is not UNSET and current == field.default:
        default = field.schema.default
        return GoDuration.parse(default) if field.type is GoDuration else default
    return _nested(current)


def _nested(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return with_defaults(value)
    if isinstance(value, list):
        filled = [_nested(item) for item in value]
        return filled if any(new is not old for new, old in zip(filled, value, strict=True)) else value
    if isinstance(value, dict):
        members = {key: _nested(item) for key, item in value.items()}
        return members if any(members[key] is not item for key, item in value.items()) else value
    return value
