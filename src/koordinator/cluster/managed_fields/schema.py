"""What a type says of the ownership of its fields: which lists have keys, and what is owned only as a whole.

Read from the table of built-in types and from the schemas of definitions, in the way that kube-openapi makes schemas of
structured-merge-diff from the documents that a server publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type, named
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.managed_fields.elements import FIELD, key_element, name_element, value_element

STRING: Final = "string"
NUMERIC: Final = "numeric"
BOOLEAN: Final = "boolean"
UNTYPED: Final = "untyped"
"""Any scalar."""
SCALARS: Final = (str, int, float)


class TypedError(KoordinatorError):
    """A value that is not of its type; the text names the field, in the real server's words."""


class Form(Enum):
    """What a value is treated as."""

    MAP = "map"
    SCALAR = "scalar"
    LIST = "list"


@dataclass(frozen=True, slots=True, eq=False)
class ListType:
    """``atomic``: owned as a whole. Otherwise items are told by their ``keys``, or without any by their value."""

    element: Atom
    atomic: bool = True
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of keys that an item may leave out."""

    def element_of(self, item: Any) -> str:
        """The step of a path that leads to an item. Raises TypedError for one that cannot be told from others."""
        if not self.keys:
            if isinstance(item, SCALARS):
                return value_element(item)
            if isinstance(item, dict):
                raise TypedError("associative list without keys has an element that's a map type")
            if isinstance(item, list):
                raise TypedError("not supported: associative list with lists as elements")
            raise TypedError("associative list without keys has an element that's an explicit null")
        if item is None:
            raise TypedError("associative list with keys may not have a null element")
        if not isinstance(item, dict):
            raise TypedError("associative list with keys may not have non-map elements")
        if len(self.keys) == 1 and type(item.get(self.keys[0])) is str:
            return name_element(self.keys[0], item[self.keys[0]])
        known = {**self.key_defaults, **item}
        keys = {name: known[name] for name in self.keys if name in known}
        if not keys:
            names = "[" + " ".join(f'"{name}"' for name in self.keys) + "]"
            why = f"an element that omits all key fields {names} (and doesn't have default values for any key fields)"
            raise TypedError(f"associative list with keys has {why}")
        return key_element(keys)

    def grouped(self, items: list[Any]) -> dict[str, list[Any]]:
        """Element -> the items that it stands for: more than one where they are repeated. Raises TypedError."""
        found: dict[str, list[Any]] = {}
        for index, item in enumerate(items):
            try:
                found.setdefault(self.element_of(item), []).append(item)
            except TypedError as error:
                raise TypedError(f"element {index}: {error}") from error
        return found


@dataclass(eq=False)
class MapType:
    """``fields`` by name; ``element`` is the type of all others, None where there are none."""

    fields: Mapping[str, Atom] = field(default_factory=dict)
    element: Atom | None = None
    atomic: bool = False

    def member(self, name: str) -> Atom | None:
        """The type of a member; None for one that is not declared."""
        return self.fields.get(name, self.element)


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """A type: most have one form, and a value without a schema may have any."""

    scalar: str = ""
    list: ListType | None = None
    map: MapType | None = None
    deduced: bool = False
    """Known from its values alone."""
    exact: bool = True
    """Python tells different values of it apart. Where anything may be, it takes 1 and true for the same."""
    only: Form | None = field(init=False)
    """The form of every value; None where the value decides."""

    def __post_init__(self) -> None:
        allowed = [form for form, of in zip(Form, (self.map, self.scalar, self.list), strict=True) if of]
        object.__setattr__(self, "only", allowed[0] if len(allowed) == 1 else None)

    def form(self, value: Any) -> Form:
        """Where the type allows several, the value decides."""
        if self.only is not None:
            return self.only
        if isinstance(value, SCALARS) and self.scalar:
            return Form.SCALAR
        if isinstance(value, list) and self.list is not None:
            return Form.LIST
        if self.map is not None:
            return Form.MAP
        return Form.SCALAR if self.scalar else Form.LIST

    def at(self, element: str) -> Atom | None:
        """The type below one step of a path."""
        if element.startswith(FIELD):
            return self.map.member(element[2:]) if self.map is not None else None
        return self.list.element if self.list is not None else None

    def names(self, element: str) -> bool:
        """Whether the schema itself names the field, other than the keys of a map."""
        return self.map is not None and element.startswith(FIELD) and element[2:] in self.map.fields


def _opaque() -> Atom:
    holder = MapType(atomic=True)
    atom = Atom(UNTYPED, ListType(Atom(UNTYPED)), holder, exact=False)
    holder.element = atom
    return atom


def _deduced() -> Atom:
    holder = MapType()
    atom = Atom(UNTYPED, ListType(OPAQUE), holder, deduced=True, exact=False)
    holder.element = atom
    return atom


OPAQUE: Final = _opaque()
"""Any value, owned as a whole."""
DEDUCED: Final = _deduced()
"""Any value; objects are owned by their members."""
_STRING: Final = Atom(STRING)
_BUILT_IN: Final[Mapping[str, str]] = {
    "string": STRING, "bool": BOOLEAN, "int32": NUMERIC, "int64": NUMERIC, "float64": NUMERIC, "bytes": STRING,
    "Duration": STRING, "Time": UNTYPED, "MicroTime": UNTYPED, "Quantity": UNTYPED, "IntOrString": UNTYPED,
}  # fmt: skip
_ZERO: Final[Mapping[str, Any]] = {"string": "", "int32": 0, "int64": 0}
_KEY_DEFAULTS: Final = {"protocol": "TCP"}
_TYPE_META: Final = {"apiVersion": _STRING, "kind": _STRING}
_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def _of_map_type(of: MapType) -> Atom:
    values = [*of.fields.values(), *([of.element] if of.element is not None else [])]
    return Atom(map=of, exact=all(value.exact for value in values))


@cache
def of_kind(object_type: ObjectType) -> Atom:
    """The type of a whole object of a built-in kind."""
    return _of_map_type(MapType({**_of_object(object_type).fields, **_TYPE_META}))


@cache
def _of_object(of: ObjectType) -> MapType:
    return MapType({name: _of_field(each) for name, each in of.fields.items()}, atomic=of.atomic)


def _of_field(of: Field) -> Atom:
    atom = _of_type(of.type, of.list_type, of.list_keys)
    if of.type.shape is Shape.OBJECT and of.list_type == "granular":
        assert atom.map is not None
        return _of_map_type(MapType(atom.map.fields, atom.map.element))
    return atom


def _of_type(of: Type, list_type: str = "", keys: tuple[str, ...] = ()) -> Atom:
    if of.shape is Shape.OBJECT:
        return _of_map_type(_of_object(of.members))
    if of.shape is Shape.MAP:
        return _of_map_type(MapType(element=_of_type(of.of), atomic=list_type == "atomic"))
    if of.shape is Shape.LIST:
        element = _of_type(of.of)
        defaults = _key_defaults(of.of.members, keys) if keys else {}
        return Atom(list=ListType(element, list_type in ("", "atomic"), keys, defaults), exact=element.exact)
    return Atom(_BUILT_IN[of.name]) if of.name in _BUILT_IN else OPAQUE


def _key_defaults(of: ObjectType, keys: tuple[str, ...]) -> Mapping[str, Any]:
    """What the published schema has: Go's zero values where a field is never left out, and those that are declared."""
    zero = {
        key: _ZERO[each.type.name]
        for key, each in ((key, of.fields[key]) for key in keys)
        if not each.omit_empty and not each.pointer and each.type.name in _ZERO
    }
    return {**zero, **{key: _KEY_DEFAULTS[key] for key in keys if key in _KEY_DEFAULTS}}


# Definitions: the schema of a custom resource, with the metadata that every object has.


def of_definition(schema: Document | None, *, preserves_unknown: bool) -> Atom:
    """The type of a custom resource; ``schema`` is its openAPIV3Schema."""
    if schema is None:
        return DEDUCED
    atom = _of_schema({"type": "object", **schema}, preserves_unknown)
    assert atom.map is not None
    return _object_of(atom.map)


def _object_of(members: MapType) -> Atom:
    metadata = _of_map_type(_of_object(named(_OBJECT_META)))
    fields = {**members.fields, **_TYPE_META, "metadata": metadata}
    return _of_map_type(MapType(fields, members.element, members.atomic))


def _of_schema(schema: Document, preserves: bool) -> Atom:
    if schema.get("x-kubernetes-int-or-string"):
        return Atom(UNTYPED, exact=False)
    preserves = preserves or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    kind = schema.get("type")
    if kind == "object":
        return _of_map(schema, preserves)
    if kind == "array":
        items = _of_list(schema, preserves)
        return Atom(list=items, exact=items.element.exact)
    if kind == "string":
        return Atom(STRING if schema.get("format") in (None, "", "byte") else UNTYPED)
    scalar = {"integer": NUMERIC, "number": NUMERIC, "boolean": BOOLEAN}.get(kind or "")
    return Atom(scalar) if scalar else DEDUCED if preserves else OPAQUE


def _of_map(schema: Document, preserves: bool) -> Atom:
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    element = DEDUCED if preserves or not properties else None
    if isinstance(additional, dict):
        element = _of_schema(additional, preserves)
    fields = {name: _of_schema(part, preserves) for name, part in properties.items()}
    members = MapType(fields, element, schema.get("x-kubernetes-map-type") == "atomic")
    return _object_of(members) if schema.get("x-kubernetes-embedded-resource") else _of_map_type(members)


def _of_list(schema: Document, preserves: bool) -> ListType:
    items = schema.get("items")
    items = items if isinstance(items, dict) else {}
    list_type, keys = schema.get("x-kubernetes-list-type"), tuple(schema.get("x-kubernetes-list-map-keys") or ())
    properties = items.get("properties") or {}
    defaults = {key: properties[key]["default"] for key in keys if "default" in (properties.get(key) or {})}
    return ListType(_of_schema(items, preserves), list_type not in ("set", "map"), keys, defaults)
