"""Defaults of a schema, for fields that are absent, or null where null is not taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordinator.api.document import copied
from koordinator.cluster.structural_schema.node import Node

Fill = Callable[[Any], None]
"""Changes an object or list in place; does nothing to a scalar."""


def filler(node: Node) -> Fill | None:
    """None where nothing below has a default."""
    below = {name: found for name, part in node.properties.items() if (found := filler(part)) is not None}
    absent = [(name, part.default, part.nullable) for name, part in node.properties.items() if part.default is not None]
    additional = _entries(node)
    items = _items(node)
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


def _items(node: Node) -> Fill | None:
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
