"""Merging an applied configuration into an object, and taking out of it what is applied no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from koordinator.cluster.managed_fields.elements import FIELD
from koordinator.cluster.managed_fields.field_set import FieldSet, is_member
from koordinator.cluster.managed_fields.schema import Atom, Form, ListType, MapType


class _Absent:
    """The type of ABSENT."""


ABSENT: Final = _Absent()
"""No value, where None is JSON's null."""


def merge(atom: Atom | None, live: Any, applied: Any) -> Any:
    """``live`` with the values of ``applied``; ABSENT where neither leaves anything. Shares parts with both.

    Raises TypedError for list items that cannot be told.
    """
    if applied is ABSENT or live is ABSENT:
        return live if applied is ABSENT else applied
    kind = atom.form(applied) if atom is not None else Form.SCALAR
    if kind is Form.SCALAR:
        return applied
    assert atom is not None
    if kind is Form.MAP:
        assert atom.map is not None
        members, changes = (value if isinstance(value, dict) else {} for value in (live, applied))
        whole = atom.map.atomic or not (members or changes)
        return applied if whole else _merged_map(atom.map, members, changes)
    assert atom.list is not None
    items, wanted = (value if isinstance(value, list) else [] for value in (live, applied))
    return applied if atom.list.atomic or not (items or wanted) else _merged_list(atom.list, items, wanted)


def _merged_map(of: MapType, live: dict[str, Any], applied: dict[str, Any]) -> Any:
    merged = {
        name: merge(of.member(name), live.get(name, ABSENT), applied.get(name, ABSENT)) for name in {**live, **applied}
    }
    return {name: value for name, value in merged.items() if value is not ABSENT} or ABSENT


def _merged_list(of: ListType, live: list[Any], applied: list[Any]) -> Any:
    """Applied items in their order; others keep their place in front of the next item that both have."""
    before, after = of.grouped(live), of.grouped(applied)
    left, right = [of.element_of(item) for item in live], [of.element_of(item) for item in applied]
    out: list[Any] = []
    for position, element in _order(left, right):
        if position is not None:
            out.append(live[position])
            continue
        # Of items that were repeated, none is the one to merge with.
        known = before.get(element, [])
        old = ABSENT if not known else known[0] if len(known) == 1 else None
        merged = merge(of.element, old, after[element][0])
        if merged is not ABSENT:
            out.append(merged)
    return out or ABSENT


def _order(left: Sequence[str], right: Sequence[str]) -> list[tuple[int | None, str]]:
    """The elements of the merged list: with their position among the live items, or None for those applied."""
    live, applied = set(left), set(right)
    shared = [element for element in right if element in live]
    merged: set[str] = set()
    out: list[tuple[int | None, str]] = []
    at_left = at_right = at_shared = 0
    while at_left < len(left) or at_right < len(right):
        following = shared[at_shared] if at_shared < len(shared) else None
        if at_left < len(left):
            element = left[at_left]
            if at_right < len(right):
                if element == right[at_right]:
                    merged.add(element)
                    out.append((None, element))
                    at_left, at_right, at_shared = at_left + 1, at_right + 1, at_shared + 1
                    continue
                if element in applied and following is not None and following != element:
                    # One that both have, but whose turn comes later.
                    at_left += 1
                    continue
            if element not in applied:
                out.append((at_left, element))
                at_left += 1
                continue
            if element in merged:
                at_left += 1
        if at_right < len(right):
            element = right[at_right]
            merged.add(element)
            out.append((None, element))
            at_right += 1
            if element == following:
                at_shared += 1
    return out


# Removal.


def remove(atom: Atom | None, value: Any, fields: FieldSet) -> Any:
    """``value`` without the fields of a set; None where nothing stays. Shares parts with it."""
    kind = atom.form(value) if atom is not None else Form.SCALAR
    if kind is Form.SCALAR:
        return value
    assert atom is not None
    if not value:
        return None
    if kind is Form.MAP:
        assert atom.map is not None
        return _without_members(atom.map, value, fields) if isinstance(value, dict) and not atom.map.atomic else None
    assert atom.list is not None
    return _without_items(atom.list, value, fields) if isinstance(value, list) and not atom.list.atomic else None


def _without_members(of: MapType, value: dict[str, Any], fields: FieldSet) -> dict[str, Any] | None:
    kept: dict[str, Any] = {}
    for name, member in value.items():
        node = fields.get(FIELD + name)
        if node is None:
            kept[name] = member
        elif not is_member(node):
            kept[name] = _emptied(member, remove(of.member(name), member, node))
    return kept or None


def _without_items(of: ListType, value: list[Any], fields: FieldSet) -> list[Any] | None:
    kept: list[Any] = []
    for item in value:
        node = fields.get(of.element_of(item))
        if node is None:
            kept.append(item)
        elif not is_member(node):
            kept.append(_emptied(item, remove(of.element, item, node)))
    return kept or None


def _emptied(before: Any, left: Any) -> Any:
    """What loses all that it holds, and not itself, stays without anything in it."""
    return type(before)() if left is None and isinstance(before, (dict, list)) else left
