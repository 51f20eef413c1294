"""Values and their types: are they what the type says, and which fields do they have?"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from koordinator.cluster.managed_fields.elements import FIELD, shown
from koordinator.cluster.managed_fields.field_set import EMPTY, LEAF, SELF, FieldSet
from koordinator.cluster.managed_fields.schema import (
    BOOLEAN,
    NUMERIC,
    SCALARS,
    STRING,
    UNTYPED,
    Atom,
    Form,
    ListType,
    MapType,
    TypedError,
)
from koordinator.cluster.structural_schema.failure import go_float
from koordinator.model.patch.merge_list import go_text

# Checking: what an applied configuration has to be.


def check(atom: Atom, value: Any) -> None:
    """Raises TypedError for fields that are not declared, values of other types and repeated list items."""
    errors = _errors(atom, value)
    if errors:
        raise TypedError(errors[0] if len(errors) == 1 else "\n".join(["errors:", *(f"  {each}" for each in errors)]))


def _errors(atom: Atom, value: Any) -> list[str]:
    kind = atom.form(value)
    if kind is Form.SCALAR:
        return _scalar_errors(atom.scalar, value)
    if value is None:
        return []
    if kind is Form.MAP:
        assert atom.map is not None
        if not isinstance(value, dict):
            return [f"expected map, got &{{{go_text(value)}}}"]
        return _map_errors(atom.map, value)
    assert atom.list is not None
    if not isinstance(value, list):
        return [f"expected list, got &{{{go_text(value)}}}"]
    return _list_errors(atom.list, value)


def _map_errors(of: MapType, value: dict[str, Any]) -> list[str]:
    errors: list[str] = []
    for name, member in value.items():
        declared = of.member(name)
        if declared is None:
            return [*errors, f".{name}: field not declared in schema"]
        errors += _located(f".{name}", _errors(declared, member))
    return errors


def _list_errors(of: ListType, value: list[Any]) -> list[str]:
    errors: list[str] = []
    seen: set[str] = set()
    for index, item in enumerate(value):
        step = f"[{index}]"
        if not of.atomic:
            try:
                element = of.element_of(item)
            except TypedError as error:
                return [*errors, f"element {index}: {error}"]
            step = shown(element)
            if element in seen:
                errors.append(f"duplicate entries for key {step}")
            seen.add(element)
        errors += _located(step, _errors(of.element, item))
    return errors


def _located(step: str, errors: list[str]) -> list[str]:
    """The path of an error grows from its end; what has none yet is set apart from it by a colon."""
    return [f"{step}{each}" if each.startswith((".", "[")) else f"{step}: {each}" for each in errors]


def _scalar_errors(scalar: str, value: Any) -> list[str]:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is None or (number if scalar == NUMERIC else isinstance(value, _GO[scalar])):
        return []
    if scalar == NUMERIC:
        return [f"expected numeric (int or float), got {_go_type(value)}"]
    if scalar == STRING:
        return [f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"]
    wanted = "boolean" if scalar == BOOLEAN else "any scalar"
    return [f"expected {wanted}, got &{{{go_text(value)}}}"]


_GO: Final[dict[str, Any]] = {STRING: str, BOOLEAN: bool, UNTYPED: SCALARS}


def _go_type(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return "string" if isinstance(value, str) else "bool"


def _go_syntax(value: Any) -> str:
    """Go's ``%#v``."""
    if isinstance(value, dict):
        members = (
            f"{msgspec.json.encode(name).decode()}:{_go_syntax(member)}" for name, member in sorted(value.items())
        )
        return f"map[string]interface {{}}{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    if value is None:
        return "interface {}(nil)"
    return go_float(value) if isinstance(value, float) else msgspec.json.encode(value).decode()


# The fields of a value: what its author owns when it is applied.


def to_set(atom: Atom, value: Any) -> FieldSet:
    """Every field that a checked value has. Raises TypedError for list items that cannot be told."""
    node = _fields(atom, value)
    return EMPTY if node is None else node


def _fields(atom: Atom, value: Any) -> FieldSet | None:
    """What is below a field; LEAF where the field itself is all that there is to own, None for nothing at all."""
    kind = atom.form(value)
    if kind is Form.SCALAR:
        return LEAF
    if kind is Form.LIST:
        assert atom.list is not None
        if atom.list.atomic:
            return LEAF
        return _item_fields(atom.list, value) if isinstance(value, list) and value else None
    assert atom.map is not None
    if atom.map.atomic:
        return LEAF
    return _member_fields(atom.map, value) if isinstance(value, dict) and value else None


def _member_fields(of: MapType, value: dict[str, Any]) -> FieldSet | None:
    found: FieldSet = {}
    for name, member in value.items():
        declared = of.member(name)
        below = _fields(declared, member) if declared is not None else LEAF
        if member is None or member == {}:
            below = LEAF
        elif name not in of.fields:
            below = _owned(below)
        if below is not None:
            found[FIELD + name] = below
    return found or None


def _item_fields(of: ListType, value: list[Any]) -> FieldSet:
    """Of repeated items only that they are there can be owned."""
    return {
        element: _owned(_fields(of.element, items[0])) if len(items) == 1 else LEAF
        for element, items in of.grouped(value).items()
    }


def _owned(below: FieldSet | None) -> FieldSet:
    return {SELF: LEAF, **below} if below else LEAF
