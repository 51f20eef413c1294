"""What encoding, validation, defaulting and the manifests know of a struct's fields, read from its type once."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from koordinator.api.constraints import NO_ADMISSION, NO_SCHEMA, Admission, Schema
from koordinator.api.duration import GoDuration
from koordinator.api.quantity import Quantity


@dataclass(frozen=True, slots=True)
class StructField:
    """A field: its Python and wire names, its bare type, and what its annotations say.

    ``optional`` is ``X | None``: then ``type`` is X. ``default`` is the value that stands for "not given".
    ``always_written``: also when empty, because the CRD requires it, because Go's encoder never omits a struct,
    or because the struct says so.
    """

    name: str
    wire_name: str
    type: Any
    optional: bool
    default: Any
    schema: Schema
    admission: Admission
    always_written: bool


@cache
def struct_fields(struct: type[msgspec.Struct]) -> tuple[StructField, ...]:
    """The fields of a struct type, in wire order."""
    hints = get_type_hints(struct, include_extras=True)
    omits = struct.__struct_config__.omit_defaults
    return tuple(_field(field, hints[field.name], omits) for field in msgspec.structs.fields(struct))


def bare_type(hint: Any) -> tuple[Any, bool, list[Any]]:
    """A type hint without ``Annotated`` and ``| None``: the type, whether None is allowed, the annotations.

    A sequence is decoded as a list, and is called one here.
    """
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        bare, optional, deeper = bare_type(inner)
        return bare, optional, [*extras, *deeper]
    if get_origin(hint) in (types.UnionType, typing.Union):
        members = [member for member in get_args(hint) if member is not type(None)]
        optional = len(members) < len(get_args(hint))
        if len(members) == 1:
            bare, _, extras = bare_type(members[0])
            return bare, optional, extras
        return typing.Union[tuple(members)], optional, []  # noqa: UP007 - built from a tuple
    if get_origin(hint) is Sequence:
        return list[get_args(hint)[0]], False, []  # type: ignore[misc]
    return hint, False, []


def merged_schema(extras: list[Any]) -> Schema:
    """The schema that annotations amount to; the outer ones win."""
    schema = NO_SCHEMA
    for extra in extras:
        if isinstance(extra, Schema):
            schema = schema.merged(extra)
    return schema


def _field(field: msgspec.structs.FieldInfo, hint: Any, omits_defaults: bool) -> StructField:
    bare, optional, extras = bare_type(hint)
    schema = merged_schema(extras)
    return StructField(
        name=field.name,
        wire_name=field.encode_name,
        type=bare,
        optional=optional,
        default=_default(field),
        schema=schema,
        admission=next((extra for extra in extras if isinstance(extra, Admission)), NO_ADMISSION),
        always_written=schema.required or not omits_defaults or (not optional and _is_go_struct(bare)),
    )


def _is_go_struct(bare: Any) -> bool:
    return isinstance(bare, type) and issubclass(bare, msgspec.Struct | Quantity | GoDuration)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default
