"""Fields that a schema does not know, and nulls that it does not take: found in one walk, then dropped.

A walk is made of closures, one for each schema that can hold an object or a list; scalars cost a look at their type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from koordinator.api.document import Document, copied
from koordinator.cluster.structural_schema.node import META_FIELDS, Node

Path = tuple[Any, str | int] | None
"""The path of what holds it, and a field or index; None for the root."""


class Dropped(NamedTuple):
    """A field that goes."""

    holder: Document
    name: str
    path: Path
    unknown: bool
    """As against a null that the field does not take."""


Find = Callable[[Any, Path, list[Dropped]], None]


class _Member(NamedTuple):
    find: Find
    drops_null: bool


class Pruner:
    """Of one schema, whose value is a whole object with its own ``metadata``."""

    def __init__(self, root: Node) -> None:
        self._find = _finder(root, embedded=True)

    def find(self, obj: Document) -> list[Dropped]:
        """What ``drop`` would take from the object, which is left as it is."""
        found: list[Dropped] = []
        self._find(obj, None, found)
        return found


def find_unknown(node: Node, value: Any) -> list[Dropped]:
    """The fields of a value of one field that its schema does not know."""
    found: list[Dropped] = []
    if isinstance(value, (dict, list)):
        _finder(node)(value, None, found)
    return [dropped for dropped in found if dropped.unknown]


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


def _keep(value: Any, path: Path, found: list[Dropped]) -> None:
    """Leave what lies here alone."""


def _empty(value: Any, path: Path, found: list[Dropped]) -> None:
    """Nothing is known of what lies here: objects lose all their fields, also those in lists."""
    if type(value) is dict:
        found.extend(Dropped(value, name, path, unknown=True) for name in value)
    elif type(value) is list:
        for index, item in enumerate(value):
            _empty(item, (path, index), found)


_KEPT: Final = _Member(_keep, drops_null=False)
_ANYTHING: Final = _Member(_empty, drops_null=False)


def _finder(node: Node, *, embedded: bool = False, preserve: bool = False) -> Find:
    """``preserve``: unknown fields stay, as they do in the items of a list that preserves them."""
    preserve = preserve or node.preserves_unknown
    members = {name: _member(part) for name, part in node.properties.items()}
    if embedded or node.embedded:
        for name in META_FIELDS:
            drops_null = name in members and members[name].drops_null
            members[name] = _Member(_keep, drops_null=drops_null)
    other = _other(node, preserve=preserve)
    below = _items(node, preserve=preserve)

    def find(value: Any, path: Path, found: list[Dropped]) -> None:
        if type(value) is list:
            for index, item in enumerate(value):
                if type(item) is dict or type(item) is list:
                    below(item, (path, index), found)
            return
        for name, item in value.items():
            member = members.get(name, other)
            if member is None:
                found.append(Dropped(value, name, path, unknown=True))
            elif item is None:
                if member.drops_null:
                    found.append(Dropped(value, name, path, unknown=False))
            elif type(item) is dict or type(item) is list:
                member.find(item, (path, name), found)

    return find


def _member(node: Node) -> _Member:
    return _Member(_finder(node), drops_null=not node.nullable and node.default is None)


def _other(node: Node, *, preserve: bool) -> _Member | None:
    """What becomes of fields that ``properties`` does not name; None: they go."""
    if (additional := node.additional_node) is not None:
        return _member(additional)
    if node.additional is not None:
        return _ANYTHING
    return _KEPT if preserve else None


def _items(node: Node, *, preserve: bool) -> Find:
    if node.items is not None:
        return _finder(node.items, preserve=preserve)
    return _keep if preserve else _empty


# Defaults of a schema, for fields that are absent, or null where null is not taken.


Fill = Callable[[Any], None]
"""Changes an object or list in place; does nothing to a scalar."""


def filler(node: Node) -> Fill | None:
    """None where nothing below has a default."""
    below = {name: found for name, part in node.properties.items() if (found := filler(part)) is not None}
    absent = [(name, part.default, part.nullable) for name, part in node.properties.items() if part.default is not None]
    additional = _entries(node)
    items = _default_items(node)
    if not (below or absent or additional or items):
        return None

    def fill(value: Any) -> None:
        if type(value) is dict:
            for name, default, nullable in absent:
                if name not in value or (value[name] is None and not nullable):
                    value[name] = copied(default)
            for name, deeper in below.items():
                if name in value:
                    deeper(value[name])
            if additional is not None:
                additional(value)
        elif items is not None and type(value) is list:
            items(value)

    return fill


def _entries(node: Node) -> Fill | None:
    """For the values of a map."""
    additional = node.additional_node
    if additional is None:
        return None
    deeper, default, nullable = filler(additional), additional.default, additional.nullable
    known = frozenset(node.properties)
    if deeper is None and default is None:
        return None

    def fill(value: dict[str, Any]) -> None:
        for name in value.keys() - known:
            if value[name] is None and not nullable:
                value[name] = copied(default)
            if deeper is not None:
                deeper(value[name])

    return fill


def _default_items(node: Node) -> Fill | None:
    """For the items of a list."""
    if node.items is None:
        return None
    deeper, default, nullable = filler(node.items), node.items.default, node.items.nullable
    if deeper is None and default is None:
        return None

    def fill(value: list[Any]) -> None:
        for index, item in enumerate(value):
            if item is None and not nullable:
                value[index] = copied(default)
            if deeper is not None:
                deeper(value[index])

    return fill
