"""Sets of field paths: what can be done with them, and those in which two objects differ.

A set is a tree of elements in the very form of FieldsV1: an empty object is a field that belongs to the set and has
nothing below it, ``"."`` marks one that belongs to it and has more below, and every other object only leads further.
Sets are never changed once they are made, so that they share what they have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from koordinator.api.document import same
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.managed_fields.elements import FIELD, MalformedElement, canonical, order
from koordinator.cluster.managed_fields.schema import UNTYPED, Atom, Form, ListType, MapType

FieldSet: TypeAlias = dict[str, Any]
"""Element -> set of what is below."""
EMPTY: Final[FieldSet] = {}
LEAF: Final[FieldSet] = {}
"""A field without anything below it that belongs to the set."""
SELF: Final = "."
_CONTAINERS: Final = (dict, list)
_encode = msgspec.json.Encoder(order="sorted").encode


class MalformedFields(KoordinatorError):
    """FieldsV1 that describe no set."""


def is_member(node: FieldSet | None) -> bool:
    """Whether the field that a node stands for belongs to the set itself."""
    return node is not None and (not node or SELF in node)


def decoded(fields: Any) -> FieldSet:
    """The set that FieldsV1 describe. Raises MalformedFields."""
    if not isinstance(fields, dict):
        raise MalformedFields("FieldsV1 must be an object")
    try:
        return _canonical(fields)
    except (MalformedElement, RecursionError) as error:
        raise MalformedFields(str(error)) from error


def _canonical(fields: dict[str, Any]) -> FieldSet:
    found: FieldSet = {}
    for name, below in fields.items():
        if not isinstance(below, dict):
            raise MalformedElement(f"{name}: an object is wanted")
        element = SELF if name == SELF else canonical(name)
        node = _canonical(below)
        if element is not None and (node or is_member(below)):
            found[element] = LEAF if element == SELF or node.keys() == {SELF} else node
    return found


def encoded(fields: FieldSet) -> Any:
    """FieldsV1 of a set, with the members of each object in the order of their names."""
    return msgspec.json.decode(_encode(fields))


def of_paths(*paths: tuple[str, ...]) -> FieldSet:
    """The set of paths, each a tuple of elements."""
    found = EMPTY
    for path in paths:
        node = LEAF
        for element in reversed(path):
            node = {element: node}
        found = union(found, node)
    return found


def of_fields(*names: str) -> FieldSet:
    """The set of fields that are named as ``metadata.labels``."""
    return of_paths(*(tuple(f"{FIELD}{part}" for part in name.split(".")) for name in names))


def paths(fields: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All paths of a set: those of one level first, then those below."""
    below = sorted(fields.keys() - {SELF}, key=order)
    for element in below:
        if is_member(fields[element]):
            yield (*prefix, element)
    for element in below:
        if fields[element]:
            yield from paths(fields[element], (*prefix, element))


def has(fields: FieldSet, path: tuple[str, ...]) -> bool:
    """Whether a path belongs to the set."""
    node: FieldSet | None = fields
    for element in path:
        node = node.get(element) if node is not None else None
    return bool(path) and is_member(node)


def _node(member: bool, below: FieldSet) -> FieldSet | None:
    if not member:
        return below or None
    return {SELF: LEAF, **below} if below else LEAF


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """What belongs to either."""
    if not one or not other:
        return one or other
    merged = dict(one)
    for element, node in other.items():
        known = merged.get(element)
        merged[element] = node if known is None else _united(known, node)
    return merged


def _united(one: FieldSet, other: FieldSet) -> FieldSet:
    if one and other:
        return union(one, other)
    # A leaf beside what has more below: the field itself belongs to the set.
    more = one or other
    return {SELF: LEAF, **more} if more and SELF not in more else more


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """What belongs to both."""
    found: FieldSet = {}
    for element in one.keys() & other.keys() - {SELF}:
        left, right = one[element], other[element]
        node = _node(is_member(left) and is_member(right), intersection(left, right) if left and right else EMPTY)
        if node is not None:
            found[element] = node
    return found


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """What belongs to the first alone; of a field that both have, what is below it may stay."""
    return _without(one, other, recursive=False)


def recursive_difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The same, where a field of the second takes all that is below it with it."""
    return _without(one, other, recursive=True)


def _without(one: FieldSet, other: FieldSet, *, recursive: bool) -> FieldSet:
    if not one or not other:
        return one
    found: FieldSet = {}
    for element, node in one.items():
        if element == SELF:
            continue
        taken = other.get(element)
        kept: FieldSet | None = node
        if taken is not None:
            gone = is_member(taken)
            below = EMPTY if gone and recursive else _below(_without(node, taken, recursive=recursive))
            kept = _node(is_member(node) and not gone, below)
        if kept is not None:
            found[element] = kept
    return found


def _below(fields: FieldSet) -> FieldSet:
    return {element: node for element, node in fields.items() if element != SELF} if SELF in fields else fields


def with_named_fields(fields: FieldSet, atom: Atom | None) -> FieldSet:
    """With every field that the schema names and that has something of the set below it."""
    found: FieldSet = {}
    for element, node in fields.items():
        if element == SELF or not node:
            found[element] = node
            continue
        below = with_named_fields(node, atom.at(element) if atom is not None else None)
        named = atom is not None and atom.names(element)
        found[element] = {SELF: LEAF, **below} if named and SELF not in below else below
    return found


def reconciled(fields: FieldSet, atom: Atom | None) -> FieldSet:
    """The set under a schema in which more is owned only as a whole than when the set was made."""
    if atom is None:
        return fields
    members, items = atom.map, atom.list
    found: FieldSet = {}
    for element, node in fields.items():
        declared = None
        if node and element.startswith(FIELD):
            declared = members.fields.get(element[2:], members.element) if members is not None else None
        elif node and items is not None:
            declared = items.element
        found[element] = node if declared is None else _reconciled(node, declared)
    return found


def _reconciled(node: FieldSet, declared: Atom) -> FieldSet:
    """``node`` has something below it."""
    if declared.deduced:
        return node
    if declared.map is not None:
        return LEAF if declared.map.atomic else reconciled(node, declared)
    if declared.list is None or declared.scalar:
        return node
    return LEAF if declared.list.atomic else reconciled(node, declared)


# Comparing: what a write has changed.


class Comparison(NamedTuple):
    """In which fields two values differ."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    @property
    def changed(self) -> FieldSet:
        """Modified or added."""
        return union(self.modified, self.added)

    def without(self, take: Callable[[FieldSet], FieldSet]) -> Comparison:
        """With ``take`` done to each part."""
        return Comparison(*map(take, self))

    def __bool__(self) -> bool:
        return any(map(bool, self))


_SAME: Final = Comparison(EMPTY, EMPTY, EMPTY)
_MODIFIED: Final = Comparison(EMPTY, {SELF: LEAF}, EMPTY)
"""Of the field itself; a set of paths below it has no place for that, so the marker stands in."""


def compare(atom: Atom, old: Any, new: Any) -> Comparison:
    """Two objects of one type. Raises TypedError for list items that cannot be told."""
    return _compared(atom, old, new) if _differ(atom, old, new) else _SAME


def _differ(atom: Atom, old: Any, new: Any) -> bool:
    """Where the type leaves no doubt, without looking for what Python takes for equal."""
    return bool(old != new) if atom.exact else not same(old, new)


def _compared(atom: Atom, old: Any, new: Any) -> Comparison:
    """Of two values that are not the same."""
    if atom.only is not None:
        return _compared_as(atom.only, atom, old, new)
    before, after = atom.form(old), atom.form(new)
    found = _compared_as(after, atom, old, new)
    if before is after:
        return found
    return Comparison(*map(union, _compared_as(before, atom, old, new), found))


def _compared_as(kind: Form, atom: Atom, old: Any, new: Any) -> Comparison:
    of = atom.map if kind is Form.MAP else atom.list
    if kind is Form.SCALAR or of is None or of.atomic:
        return _leaf(old, new)
    holder: type[Any] = dict if kind is Form.MAP else list
    left, right = (value if isinstance(value, holder) else holder() for value in (old, new))
    if not left and not right:
        return _leaf(old, new)
    return _compared_maps(of, left, right) if isinstance(of, MapType) else _compared_lists(of, left, right)


def _leaf(old: Any, new: Any) -> Comparison:
    numbers = not isinstance(old, bool) and not isinstance(new, bool) and isinstance(old, (int, float))
    return _SAME if numbers and old == new else _MODIFIED


def _add(found: Comparison, element: str, below: Comparison) -> None:
    """What differs in a field, to what differs in the value that holds it."""
    for part, fields in zip(found, below, strict=True):
        if fields:
            part[element] = LEAF if fields.keys() == {SELF} else fields


def _compared_maps(of: MapType, old: dict[str, Any], new: dict[str, Any]) -> Comparison:
    found, declared = Comparison({}, {}, {}), of.fields
    for name, value in old.items():
        member = declared.get(name, of.element)
        if name not in new:
            found.removed[FIELD + name] = whole(member, value)
        elif _differ(member or _UNKNOWN, value, new[name]):
            _add(found, FIELD + name, _compared(member or _UNKNOWN, value, new[name]))
    for name, value in new.items():
        if name not in old:
            found.added[FIELD + name] = whole(declared.get(name, of.element), value)
    return found


def _compared_lists(of: ListType, old: list[Any], new: list[Any]) -> Comparison:
    found = Comparison({}, {}, {})
    before, after = of.grouped(old), of.grouped(new)
    for element in before | after:
        left, right = before.get(element, []), after.get(element, [])
        if len(left) == len(right) == 1:
            if _differ(of.element, left[0], right[0]):
                _add(found, element, _compared(of.element, left[0], right[0]))
        elif len(left) > 1 and len(right) > 1:
            if not same(left, right):
                _add(found, element, _MODIFIED)
        else:
            # Repeated items are owned as one: they come or go together, and beside them the one that is told apart.
            if left:
                found.removed[element] = _whole_item(of, left)
            if right:
                found.added[element] = _whole_item(of, right)
    return found


def whole(atom: Atom | None, value: Any) -> FieldSet:
    """The fields of a value that was not there before, or is there no more: all of them, and those that hold them."""
    kind = Form.SCALAR if atom is None else atom.only or atom.form(value)
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
    return {SELF: LEAF} | {key: _whole_item(atom.list, items) for key, items in atom.list.grouped(value).items()}


def _whole_item(of: ListType, items: list[Any]) -> FieldSet:
    return whole(of.element, items[0]) if len(items) == 1 else LEAF


_UNKNOWN: Final = Atom(UNTYPED, exact=False)
"""Of a field that the schema does not have."""
