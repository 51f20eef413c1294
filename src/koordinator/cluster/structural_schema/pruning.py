"""Fields that a schema does not know, and nulls that it does not take: found in one walk, then dropped.

``validity.normality_of`` says beforehand whether there is anything to find: nearly always there is not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from koordinator.api.document import Document, copied
from koordinator.cluster.structural_schema.node import META_FIELDS, NOTHING, Node

Path = tuple[Any, str | int] | None
"""The path of what holds it, and a field or index; None for the root."""


class Dropped(NamedTuple):
    """A field that goes."""

    holder: Document
    name: str
    path: Path
    unknown: bool
    """As against a null that the field does not take."""


def to_drop(node: Node, value: Any) -> list[Dropped]:
    """What ``drop`` would take from a value. A whole object, with its own metadata, is one whose node is embedded."""
    found: list[Dropped] = []
    _find(node, value, None, found)
    return found


def _find(node: Node, value: Any, path: Path, found: list[Dropped], *, preserve: bool = False) -> None:
    """``preserve``: unknown fields stay, as they do in the items of a list that preserves them."""
    preserve = preserve or node.preserves_unknown
    if type(value) is list and (node.items is not None or not preserve):
        for index, item in enumerate(value):
            _find(node.items or NOTHING, item, (path, index), found, preserve=preserve)
    elif type(value) is dict:
        for name, item in value.items():
            kept = node.embedded and name in META_FIELDS
            part = node.properties.get(name) or (None if kept else node.additional_node)
            if part is None and (kept or (preserve and node.additional is None)):
                continue
            if part is None and node.additional is None:
                found.append(Dropped(value, name, path, unknown=True))
                continue
            below = part or NOTHING
            if item is None:
                if not below.nullable and below.default is None:
                    found.append(Dropped(value, name, path, unknown=False))
            elif not kept:
                _find(below, item, (path, name), found)


def drop(found: list[Dropped]) -> None:
    for holder, name, _, _ in found:
        holder.pop(name, None)


def unknown_paths(found: list[Dropped]) -> list[str]:
    """In the order of the real server's warnings."""
    return sorted(_text((dropped.path, dropped.name)) for dropped in found if dropped.unknown)


def _text(path: Path) -> str:
    if path is None:
        return ""
    above, step = path
    before = _text(above)
    if isinstance(step, int):
        return f"{before}[{step}]"
    return f"{before}.{step}" if before else step


# Defaults of a schema, for fields that are absent, or null where null is not taken.


def fill(node: Node, value: Any) -> None:
    """Changes an object or list in place."""
    if type(value) is dict:
        for name, part in node.properties.items():
            if part.default is not None and name not in value:
                value[name] = copied(part.default)
        for name in value:
            if (held := node.properties.get(name) or node.additional_node) is not None:
                _fill_slot(held, value, name)
    elif type(value) is list and node.items is not None:
        for index in range(len(value)):
            _fill_slot(node.items, value, index)


def _fill_slot(node: Node, holder: Any, key: Any) -> None:
    """What an object or a list holds."""
    if holder[key] is None and not node.nullable:
        holder[key] = copied(node.default)
    fill(node, holder[key])
