"""Strategic merge patch (``application/strategic-merge-patch+json``), kubectl's format for built-in kinds.

Objects merge; a list merges by the key that its Go type declares, or is replaced. Directives in the patch:
``$patch: replace|delete|merge`` on an object, ``$retainKeys`` for unions, ``$setElementOrder/LIST`` for the order of a
merged list and ``$deleteFromPrimitiveList/LIST`` for elements without a key.
"""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type
from koordinator.model.patch.errors import PatchError, bad_request
from koordinator.model.patch.merge_list import (
    check_merge_key,
    go_text,
    identity,
    merge_objects,
    merge_primitives,
    order_elements,
    remove_primitives,
)

_PATCH: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_SET_ORDER: Final = "$setElementOrder/"
_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"
_ABSENT: Final = object()


def apply_strategic_patch(original: Document, changes: Document, of: ObjectType | None) -> Document:
    """Merge ``changes`` into ``original``, in place; ``of`` is None where the type is not known. Raises PatchError."""
    if _PATCH in changes:
        return _whole_object(changes)
    _retain_keys(original, changes)
    orders = {
        key.removeprefix(_SET_ORDER): _list_directive(value, "setElementOrder list")
        for key, value in changes.items()
        if key.startswith(_SET_ORDER)
    }
    _check_orders(orders, changes, of)
    for key, change in changes.items():
        if key.startswith(_DELETE_PRIMITIVES):
            _delete_primitives(original, key.removeprefix(_DELETE_PRIMITIVES), change)
    for key in {key: None for key in (*changes, *orders) if not key.startswith("$")}:
        _merge_field(original, key, changes.get(key, _ABSENT), of.fields.get(key) if of else None, orders.get(key))
    return original


def check_merge_keys(changes: Document, of: ObjectType | None) -> None:
    """Raises PatchError for an element that could not be merged into a list; one into an empty list needs no key."""
    for key, change in changes.items():
        field = of.fields.get(key) if of else None
        members = _members(field.type if field else None)
        if isinstance(change, dict):
            check_merge_keys(change, members)
        elif field is not None and field.merge and isinstance(change, list):
            elements = _members(field.type.of)
            for element in change if elements is not None else ():
                if isinstance(element, dict):
                    check_merge_key(element, field.merge_key)
                    check_merge_keys(element, elements)


def _whole_object(changes: Document) -> Document:
    directive = changes[_PATCH]
    rest = {key: value for key, value in changes.items() if key != _PATCH}
    if directive == "replace":
        return rest
    if directive == "delete":
        return {}
    raise PatchError(500, "InternalError", f"unknown patch type: {directive} in map: {go_text(changes)}")


def _retain_keys(original: Document, changes: Document) -> None:
    if _RETAIN_KEYS not in changes:
        return
    retained = changes[_RETAIN_KEYS]
    if not isinstance(retained, list):
        raise bad_request("invalid patch format of retainKeys")
    extra = [
        key for key, value in changes.items() if not key.startswith("$") and value is not None and key not in retained
    ]
    if extra:
        raise bad_request("invalid patch format of retainKeys")
    for key in [key for key in original if key not in retained]:
        del original[key]


def _list_directive(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"invalid patch format of {name}")
    return value


def _check_orders(orders: dict[str, list[Any]], changes: Document, of: ObjectType | None) -> None:
    """The patch's own elements must come in the order that the patch's ``$setElementOrder`` has."""
    for key, order in orders.items():
        field = of.fields.get(key) if of else None
        merge_key = field.merge_key if field else ""
        wanted = iter([identity(element, merge_key) for element in order])
        patched = _without_directives(changes.get(key) or [])
        if not all(identity(element, merge_key) in wanted for element in patched):
            listed, wanted_list = go_text(patched), go_text(order)
            message = f"The order in patch list:\n{listed}\n doesn't match $setElementOrder list:\n{wanted_list}\n"
            raise PatchError(500, "InternalError", message)


def _without_directives(elements: list[Any]) -> list[Any]:
    return [element for element in elements if not (isinstance(element, dict) and _PATCH in element)]


def _delete_primitives(original: Document, key: str, change: Any) -> None:
    if not isinstance(change, list):
        raise bad_request("invalid patch format of primitive list")
    if isinstance(original.get(key), list):
        original[key] = remove_primitives(original[key], change)


def _merge_field(original: Document, key: str, change: Any, field: Field | None, order: list[Any] | None) -> None:
    if change is None:
        original.pop(key, None)
        return
    current = original.get(key)
    if isinstance(change, dict):
        members = _members(field.type if field else None)
        original[key] = apply_strategic_patch(current if isinstance(current, dict) else {}, change, members)
    elif field is not None and field.merge and (isinstance(change, list) or change is _ABSENT):
        server = current if isinstance(current, list) else []
        patched: list[Any] = change if isinstance(change, list) else []
        merged = _merge_list(server, patched, field)
        requested_order = order if order is not None else _without_directives(patched)
        if merged or current is not None:
            original[key] = order_elements(merged, requested_order, server, field.merge_key)
    elif change is not _ABSENT:
        original[key] = _without_nulls(change)


def _merge_list(current: list[Any], change: list[Any], field: Field) -> list[Any]:
    members = _members(field.type.of)
    if members is None:
        return merge_primitives(current, change)
    return merge_objects(
        current,
        change,
        field.merge_key,
        lambda old, new: apply_strategic_patch(old, new, members),
    )


def _members(type_: Type | None) -> ObjectType | None:
    return type_.members if type_ is not None and type_.shape is Shape.OBJECT else None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
