"""How a strategic merge patch merges one list: by key, by value, and in which order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.model.patch.errors import PatchError

_encode: Final = msgspec.json.Encoder(order="sorted").encode


def merge_primitives(current: list[Any], change: list[Any]) -> list[Any]:
    """The union, each value once."""
    merged: dict[Any, Any] = {}
    for value in (*current, *change):
        merged.setdefault(_identity_of(value), value)
    return list(merged.values())


def remove_primitives(current: list[Any], removed: list[Any]) -> list[Any]:
    gone = {_identity_of(value) for value in removed}
    return [value for value in current if _identity_of(value) not in gone]


def merge_objects(
    current: list[Any], change: list[Any], merge_key: str, merge: Callable[[Document, Document], Document]
) -> list[Any]:
    """Merge elements with equal keys, append the others; ``$patch: delete`` removes, ``replace`` empties the list."""
    plain = []
    replaced, removed = False, set()
    for element in change:
        if not isinstance(element, dict):
            raise PatchError(422, "Invalid", f"cannot merge {element!r} into a list of objects")
        match element.get("$patch"):
            case None:
                plain.append(element)
            case "delete":
                removed.add(_identity_of(_key_of(element, merge_key)))
            case "replace":
                replaced = True
            case "merge":
                raise PatchError(500, "InternalError", "merging lists cannot yet be specified in the patch")
            case directive:
                raise PatchError(500, "InternalError", f"unknown patch type: {directive} in map: {go_text(element)}")
    merged = [item for item in current if _identity_of(item.get(merge_key)) not in removed]
    if replaced or not merged:
        # There is nothing that an element could be merged with, so that it needs no key.
        return [merge({}, element) for element in plain]
    places: dict[Any, int] = {}
    for index, item in enumerate(merged):
        places.setdefault(_identity_of(item.get(merge_key)), index)
    for element in plain:
        key = _identity_of(_key_of(element, merge_key))
        at = places.get(key)
        if at is None:
            places[key] = len(merged)
            merged.append(merge({}, element))
        else:
            merged[at] = merge(merged[at], element)
    return merged


def order_elements(merged: list[Any], order: list[Any], server: list[Any], merge_key: str) -> list[Any]:
    """Interleave the elements that ``order`` names, in that order, with those that only the server has.

    An element of the server comes first only when it preceded the named one there; a new element goes in front.
    """
    rank = _positions(order, merge_key)
    place = _positions(server, merge_key)
    identities = [(identity(element, merge_key), element) for element in merged]
    named = sorted((pair for pair in identities if pair[0] in rank), key=lambda pair: rank[pair[0]])
    others = deque(pair for pair in identities if pair[0] not in rank)
    result: list[Any] = []
    for key, element in named:
        while others and key in place and place.get(others[0][0], len(server)) < place[key]:
            result.append(others.popleft()[1])
        result.append(element)
    return result + [element for _, element in others]


def identity(element: Any, merge_key: str) -> Any:
    """The identity of an element: the value of the merge key, or the element itself."""
    return _identity_of(element.get(merge_key) if isinstance(element, dict) else element)


def _identity_of(value: Any) -> Any:
    """A hashable value that differs for 1, 1.0 and true, which are equal in Python."""
    return (dict, _encode(value)) if isinstance(value, (dict, list)) else (type(value), value)


def _positions(elements: list[Any], merge_key: str) -> dict[Any, int]:
    return {identity(element, merge_key): index for index, element in enumerate(elements)}


def check_merge_key(element: Document, merge_key: str) -> None:
    """Raises PatchError for an element to be merged that lacks the merge key."""
    if element.get("$patch") in (None, "delete"):
        _key_of(element, merge_key)


def _key_of(element: Document, merge_key: str) -> Any:
    if merge_key not in element:
        raise PatchError(
            500, "InternalError", f"map: {go_text(element)} does not contain declared merge key: {merge_key}"
        )
    return element[merge_key]


def go_text(value: Any) -> str:
    """A value as Go's ``%v`` prints it, for messages that clients may match."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(item)}' for key, item in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)
