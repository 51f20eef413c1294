"""Values and their types: are they what the type says, which fields do they have, in which do two of them differ?"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from koordinator.api.document import same
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.managed_fields.elements import FIELD, key_element, name_element, shown, value_element
from koordinator.cluster.managed_fields.field_set import EMPTY, LEAF, SELF, FieldSet, union
from koordinator.cluster.managed_fields.schema import BOOLEAN, NUMERIC, STRING, Atom, ListType, MapType
from koordinator.cluster.structural_schema.failure import go_float
from koordinator.model.patch.merge_list import go_text

_SCALARS: Final = (str, int, float)
_CONTAINERS: Final = (dict, list)


class TypedError(KoordinatorError):
    """A value that is not of its type; the text names the field, in the real server's words."""


class Form(Enum):
    """What a value is treated as."""

    MAP = "map"
    SCALAR = "scalar"
    LIST = "list"


def form(atom: Atom, value: Any) -> Form:
    """Where the type allows several, the value decides."""
    if isinstance(value, _SCALARS) and atom.scalar:
        return Form.SCALAR
    if isinstance(value, list) and atom.list is not None:
        return Form.LIST
    if atom.map is not None:
        return Form.MAP
    return Form.SCALAR if atom.scalar else Form.LIST


def list_element(of: ListType, item: Any) -> str:
    """The step of a path that leads to an item. Raises TypedError for one that cannot be told from others."""
    if not of.keys:
        if isinstance(item, _SCALARS):
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
    if len(of.keys) == 1 and type(item.get(of.keys[0])) is str:
        return name_element(of.keys[0], item[of.keys[0]])
    keys = {name: item[name] if name in item else of.key_defaults[name] for name in of.keys if _has_key(of, item, name)}
    if not keys:
        names = "[" + " ".join(f'"{name}"' for name in of.keys) + "]"
        why = f"an element that omits all key fields {names} (and doesn't have default values for any key fields)"
        raise TypedError(f"associative list with keys has {why}")
    return key_element(keys)


def _has_key(of: ListType, item: dict[str, Any], name: str) -> bool:
    return name in item or name in of.key_defaults


def grouped(of: ListType, items: list[Any] | None) -> dict[str, list[Any]]:
    """Element -> the items that it stands for: more than one where they are repeated. Raises TypedError."""
    found: dict[str, list[Any]] = {}
    for index, item in enumerate(items or ()):
        try:
            found.setdefault(list_element(of, item), []).append(item)
        except TypedError as error:
            raise TypedError(f"element {index}: {error}") from error
    return found


# Checking: what an applied configuration has to be.


def check(atom: Atom, value: Any) -> None:
    """Raises TypedError for fields that are not declared, values of other types and repeated list items."""
    errors = _errors(atom, value)
    if errors:
        raise TypedError(errors[0] if len(errors) == 1 else "\n".join(["errors:", *(f"  {each}" for each in errors)]))


def _errors(atom: Atom, value: Any) -> list[str]:
    kind = form(atom, value)
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
                element = list_element(of, item)
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


_GO: Final[dict[str, Any]] = {STRING: str, BOOLEAN: bool, "untyped": _SCALARS}


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
    kind = form(atom, value)
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
        for element, items in grouped(of, value).items()
    }


def _owned(below: FieldSet | None) -> FieldSet:
    return {SELF: LEAF, **below} if below else LEAF


# Comparing: what a write has changed.


class Comparison(NamedTuple):
    """In which fields two values differ."""

    removed: FieldSet = EMPTY
    modified: FieldSet = EMPTY
    added: FieldSet = EMPTY

    @property
    def changed(self) -> FieldSet:
        """Modified or added."""
        return union(self.modified, self.added)

    def without(self, take: Callable[[FieldSet], FieldSet]) -> Comparison:
        """With ``take`` done to each part."""
        return Comparison(take(self.removed), take(self.modified), take(self.added))

    def __bool__(self) -> bool:
        return bool(self.removed or self.modified or self.added)


_SAME: Final = Comparison()
_MODIFIED: Final = Comparison(modified={SELF: LEAF})
"""Of the field itself; a set of paths below it has no place for that, so the marker stands in."""


def compare(atom: Atom, old: Any, new: Any) -> Comparison:
    """Two objects of one type. Raises TypedError for list items that cannot be told."""
    return _compared(atom, old, new) if _differ(atom, old, new) else _SAME


def _differ(atom: Atom, old: Any, new: Any) -> bool:
    """Where the type leaves no doubt, without looking for what Python takes for equal."""
    return bool(old != new) if atom.exact else not same(old, new)


def _compared(atom: Atom, old: Any, new: Any) -> Comparison:
    """Of two values that are not the same."""
    before, after = form(atom, old), form(atom, new)
    found = _compared_as(after, atom, old, new)
    if before is after:
        return found
    other = _compared_as(before, atom, old, new)
    return Comparison(*map(union, other, found))


def _compared_as(kind: Form, atom: Atom, old: Any, new: Any) -> Comparison:
    if kind is Form.MAP:
        assert atom.map is not None
        left, right = (value if isinstance(value, dict) else None for value in (old, new))
        if atom.map.atomic or (not left and not right):
            return _leaf(old, new)
        return _compared_maps(atom.map, left or {}, right or {})
    if kind is Form.LIST:
        assert atom.list is not None
        first, second = (value if isinstance(value, list) else None for value in (old, new))
        if atom.list.atomic or (not first and not second):
            return _leaf(old, new)
        return _compared_lists(atom.list, first, second)
    return _leaf(old, new)


def _leaf(old: Any, new: Any) -> Comparison:
    numbers = not isinstance(old, bool) and not isinstance(new, bool) and isinstance(old, (int, float))
    return _SAME if numbers and old == new else _MODIFIED


class _Parts:
    """A comparison in the making."""

    def __init__(self) -> None:
        self._parts: tuple[FieldSet, FieldSet, FieldSet] = ({}, {}, {})

    def removed(self, element: str, node: FieldSet) -> None:
        self._parts[0][element] = node

    def added(self, element: str, node: FieldSet) -> None:
        self._parts[2][element] = node

    def differing(self, element: str, found: Comparison) -> None:
        for part, below in zip(self._parts, found, strict=True):
            if below:
                part[element] = LEAF if below.keys() == {SELF} else below

    def comparison(self) -> Comparison:
        return Comparison(*self._parts)


def _compared_maps(of: MapType, old: dict[str, Any], new: dict[str, Any]) -> Comparison:
    parts, declared = _Parts(), of.fields
    for name, value in old.items():
        member = declared.get(name, of.element)
        if name not in new:
            parts.removed(FIELD + name, whole(member, value))
        elif _differ(member or _UNKNOWN, value, new[name]):
            parts.differing(FIELD + name, _compared(member or _UNKNOWN, value, new[name]))
    for name, value in new.items():
        if name not in old:
            parts.added(FIELD + name, whole(declared.get(name, of.element), value))
    return parts.comparison()


def _compared_lists(of: ListType, old: list[Any] | None, new: list[Any] | None) -> Comparison:
    parts = _Parts()
    before, after = grouped(of, old), grouped(of, new)
    for element in before | after:
        left, right = before.get(element, []), after.get(element, [])
        if len(left) < 2 and len(right) < 2:
            _compare_items(parts, of, element, left, right)
        elif len(left) > 1 and len(right) > 1:
            if not same(left, right):
                parts.differing(element, _MODIFIED)
        else:
            # Repeated items are owned as one: they come or go together, and beside them the one that is told apart.
            if left:
                parts.removed(element, LEAF if len(left) > 1 else whole(of.element, left[0]))
            if right:
                parts.added(element, LEAF if len(right) > 1 else whole(of.element, right[0]))
    return parts.comparison()


def _compare_items(parts: _Parts, of: ListType, element: str, left: list[Any], right: list[Any]) -> None:
    if not right:
        parts.removed(element, whole(of.element, left[0]))
    elif not left:
        parts.added(element, whole(of.element, right[0]))
    elif _differ(of.element, left[0], right[0]):
        parts.differing(element, _compared(of.element, left[0], right[0]))


def whole(atom: Atom | None, value: Any) -> FieldSet:
    """The fields of a value that was not there before, or is there no more: all of them, and those that hold them."""
    kind = form(atom, value) if atom is not None else Form.SCALAR
    if kind is Form.SCALAR or not value:
        return LEAF
    assert atom is not None
    if kind is Form.MAP:
        of = atom.map
        assert of is not None
        if of.atomic or not isinstance(value, dict):
            return LEAF
        found = {SELF: LEAF}
        for name, each in value.items():
            # Most members are scalars, for which a call would be most of the work.
            found[FIELD + name] = whole(of.fields.get(name, of.element), each) if type(each) in _CONTAINERS else LEAF
        return found
    assert atom.list is not None
    if atom.list.atomic or not isinstance(value, list):
        return LEAF
    items = grouped(atom.list, value)
    below = {key: whole(atom.list.element, each[0]) if len(each) == 1 else LEAF for key, each in items.items()}
    return {SELF: LEAF, **below}


_UNKNOWN: Final = Atom("untyped", exact=False)
"""Of a field that the schema does not have."""
