"""Compiles a profile's patch when the profile is created or changes; only writing its values is left for each pod.

The result equals that of ``apply_strategic_patch``, which stays the one implementation of the format: each part that
has directives, or that meets an object that does not fit its type, is delegated to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type
from koordinator.model.patch.strategic import apply_strategic_patch

CompiledPatch = Callable[[Document], Document]
"""Returns the object with the patch applied, changed in place where possible. Raises PatchError."""
_Step = Callable[[Document], None]
_PATCH: Final = "$patch"


def compile_patch(patch: Document, of: ObjectType | None) -> CompiledPatch:
    """Compile ``patch``, which is kept. ``of`` is the type of the objects to patch, None where it is not known."""
    if any(key.startswith("$") for key in patch):
        return lambda target: apply_strategic_patch(target, copied(patch), of)
    steps = [_step(key, change, of) for key, change in patch.items()]

    def apply(target: Document) -> Document:
        for step in steps:
            step(target)
        return target

    return apply


def _step(key: str, change: Any, of: ObjectType | None) -> _Step:
    field = of.fields.get(key) if of is not None else None
    if change is None:
        return lambda target: _remove(target, key)
    if isinstance(change, dict):
        return _merge_object(key, compile_patch(change, _members(field.type) if field is not None else None))
    if field is not None and field.merge and isinstance(change, list):
        return _merge_list(key, change, field, of)
    # Merging into an empty object yields the value that the patch gives every object.
    return _set(key, apply_strategic_patch({}, {key: copied(change)}, of)[key])


def _remove(target: Document, key: str) -> None:
    target.pop(key, None)


def _merge_object(key: str, apply: CompiledPatch) -> _Step:
    def step(target: Document) -> None:
        current = target.get(key)
        target[key] = apply(current if isinstance(current, dict) else {})

    return step


def _set(key: str, value: Any) -> _Step:
    def step(target: Document) -> None:
        target[key] = copied(value)

    return step


def _merge_list(key: str, change: list[Any], field: Field, of: ObjectType | None) -> _Step:
    alone = {key: change}

    def in_full(target: Document) -> None:
        apply_strategic_patch(target, copied(alone), of)

    members = _members(field.type.of)
    if members is None or not _is_plain(change, field.merge_key):
        return in_full
    elements = [(each[field.merge_key], compile_patch(each, members)) for each in change]
    named = frozenset(name for name, _ in elements)

    def step(target: Document) -> None:
        current = target.get(key)
        items: list[Any] = current if isinstance(current, list) else []
        places = _places(items, field.merge_key)
        if places is None:
            in_full(target)
        else:
            target[key] = _merged(items, places, elements, named)

    return step


def _is_plain(change: list[Any], merge_key: str) -> bool:
    """Whether ``change`` is a non-empty list of objects with unique names and no directives."""
    names = [each.get(merge_key) if isinstance(each, dict) and _PATCH not in each else None for each in change]
    return bool(names) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _places(items: list[Any], merge_key: str) -> dict[Any, int] | None:
    """The index of each element, by its name; None where they are not all objects with unique names."""
    try:
        places = {item[merge_key]: place for place, item in enumerate(items)}
    except (TypeError, KeyError):
        return None
    return places if len(places) == len(items) else None


def _merged(
    items: list[Any], places: dict[Any, int], elements: Sequence[tuple[Any, CompiledPatch]], named: frozenset[Any]
) -> list[Any]:
    """The patched elements in the order of the patch, new ones in front, and the others where they were among them."""
    if len(elements) == 1:
        return _merged_one(items, places, *elements[0])
    merged: list[Any] = []
    others = [(place, items[place]) for name, place in places.items() if name not in named]
    done = 0
    for name, apply in elements:
        place = places.get(name)
        if place is None:
            merged.append(apply({}))
            continue
        while done < len(others) and others[done][0] < place:
            merged.append(others[done][1])
            done += 1
        merged.append(apply(items[place]))
    merged += [item for _, item in others[done:]]
    return merged


def _merged_one(items: list[Any], places: dict[Any, int], name: Any, apply: CompiledPatch) -> list[Any]:
    """The case of one patched element, which is that of nearly every patch, without looking at the other elements."""
    place = places.get(name)
    if place is None:
        return [apply({}), *items]
    return [*items[:place], apply(items[place]), *items[place + 1 :]]


def _members(type_: Type) -> ObjectType | None:
    return type_.members if type_.shape is Shape.OBJECT else None
