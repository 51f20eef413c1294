"""The table of built-in types, read from ``kubernetes.json``.

The table holds facts of Kubernetes v1.35: what Go struct tags and the OpenAPI document say of each field. One field is
one text, ``name|type|protobuf number|flags|patch strategy:merge key|list type:list keys``; a name of ``*`` is an
embedded struct. Flags: p pointer, o omitempty, z omitzero, r required. ``atomic`` names the types that server-side
apply owns as a whole. Defaulting, patching, apply, decoding of protobuf and the OpenAPI documents all read it, so that
they cannot disagree. The program that wrote it is kept with the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property
from importlib import resources
from typing import Final

import msgspec


class Shape(Enum):
    SCALAR = "scalar"
    OBJECT = "object"
    LIST = "list"
    MAP = "map"


SCALARS: Final = frozenset(
    {
        "string", "bool", "int32", "int64", "float64", "bytes", "Time", "MicroTime", "Duration", "Quantity",
        "IntOrString", "Raw", "Fields", "Schema",
    }
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Type:
    """The type of a field. ``name`` is a scalar's or an object's; ``element`` is what lists and maps hold."""

    shape: Shape
    name: str = ""
    element: Type | None = None
    wrapped: bool = False
    """A named Go slice: protobuf holds it in a message of its own."""
    declared: ObjectType | None = None
    """The fields of an object type that the table does not hold: a custom resource's."""

    @cached_property
    def members(self) -> ObjectType:
        """The fields of an object type."""
        return self.declared or named(self.name)

    @property
    def of(self) -> Type:
        """What a list or map holds."""
        assert self.element is not None
        return self.element


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    name: str
    type: Type
    number: int = 0
    """In protobuf; 0 where the field is not there."""
    pointer: bool = False
    omit_empty: bool = False
    omit_zero: bool = False
    required: bool = False
    merge: bool = False
    """Lists are merged by a strategic merge patch instead of replaced."""
    retain_keys: bool = False
    merge_key: str = ""
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    embedded: str = ""
    """The Go struct, such as ``VolumeSource``, whose field it is, where that is embedded in the type."""


TYPE_META: Final = ("apiVersion", "kind")
"""What the table leaves out of all kinds."""


@dataclass(frozen=True, eq=False)
class ObjectType:
    name: str
    fields: dict[str, Field]
    embedded: dict[int, str]
    """Protobuf number -> type whose fields appear in this one's JSON."""
    atomic: bool = False
    """Server-side apply owns it as a whole."""

    @cached_property
    def is_kind(self) -> bool:
        """Whether its objects say which kind they are of, wherever they stand: claims in a StatefulSet do, too."""
        return self.name in _table().kinds.values()

    @cached_property
    def by_number(self) -> dict[int, Field]:
        return {field.number: field for field in self.fields.values() if field.number}


class _Table(msgspec.Struct):
    atomic: frozenset[str]
    types: dict[str, list[str]]
    kinds: dict[str, str]


@cache
def _table() -> _Table:
    raw = resources.files(__package__).joinpath("kubernetes.json").read_bytes()
    return msgspec.json.decode(raw, type=_Table)


def kind_type(api_version: str, kind: str) -> ObjectType | None:
    """The type of a built-in kind; None for everything else."""
    name = _table().kinds.get(f"{api_version}/{kind}")
    return named(name) if name else None


@cache
def named(name: str) -> ObjectType:
    """A type by its OpenAPI name, such as ``io.k8s.api.core.v1.Container``. Raises KeyError."""
    fields: dict[str, Field] = {}
    embedded: dict[int, str] = {}
    for row in _table().types[name]:
        field_name, type_text, number, flags, patch, lists = row.split("|")
        if field_name == "*":
            embedded[int(number)] = type_text
            # Numbers of an embedded type count within its own message, not within this one.
            fields.update(_embedded(type_text))
            continue
        fields[field_name] = _field(field_name, type_text, number, flags, patch, lists)
    return ObjectType(name, fields, embedded, name in _table().atomic)


def _embedded(name: str) -> dict[str, Field]:
    struct = name.rpartition(".")[2]
    return {
        key: replace(field, number=0, embedded=f"{struct}.{field.embedded}".rstrip("."))
        for key, field in named(name).fields.items()
    }


@cache
def go_names() -> dict[str, dict[str, str]]:
    """Type -> field -> Go's names of its type, where the JSON type does not say them: ``v1.ResourceList|Quantity`` is
    the name of the map and that of what it holds. Recorded from the error messages of the real server."""
    raw = resources.files(__package__).joinpath("go_names.json").read_bytes()
    return msgspec.json.decode(raw, type=dict[str, dict[str, str]])


def _field(name: str, type_text: str, number: str, flags: str, patch: str, lists: str) -> Field:
    strategies, _, merge_key = patch.partition(":")
    list_type, _, list_keys = lists.partition(":")
    return Field(
        name=name,
        type=_type(type_text),
        number=int(number or 0),
        pointer="p" in flags,
        omit_empty="o" in flags,
        omit_zero="z" in flags,
        required="r" in flags,
        merge="merge" in strategies.split(","),
        retain_keys="retainKeys" in strategies.split(","),
        merge_key=merge_key,
        list_type=list_type,
        list_keys=tuple(filter(None, list_keys.split(","))),
    )


@cache
def _type(text: str) -> Type:
    for prefix, shape in (("[]", Shape.LIST), ("[wrapped]", Shape.LIST), ("map[]", Shape.MAP)):
        if text.startswith(prefix):
            return Type(shape, element=_type(text.removeprefix(prefix)), wrapped=prefix == "[wrapped]")
    return Type(Shape.SCALAR if text in SCALARS else Shape.OBJECT, text)
