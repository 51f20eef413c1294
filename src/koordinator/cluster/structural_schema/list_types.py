"""Lists of type ``set`` and ``map``: no item, and no combination of keys, twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from koordinator.cluster.resource import Cause
from koordinator.cluster.structural_schema.failure import go_json, shown
from koordinator.cluster.structural_schema.node import Node

Check = Callable[[Any, str], list[Cause]]
"""(value, path) -> causes."""


def checker(node: Node) -> Check | None:
    """None where nothing below is such a list."""
    members = {name: found for name, part in node.properties.items() if (found := checker(part)) is not None}
    additional = checker(node.additional_node) if node.additional_node is not None else None
    items = checker(node.items) if node.items is not None else None
    own = {"set": _set, "map": _map}.get(node.list_type)
    if not (members or additional or items or own):
        return None

    def check(value: Any, path: str) -> list[Cause]:
        causes: list[Cause] = []
        if isinstance(value, list):
            causes += own(node, value, path) if own is not None else []
            for index, item in enumerate(value if items is not None else ()):
                causes += items(item, f"{path}[{index}]") if items is not None else []
        elif isinstance(value, dict):
            for name, item in value.items() if additional is not None else ():
                causes += additional(item, f"{path}[{name}]") if additional is not None else []
            for name, deeper in members.items():
                if name in value:
                    causes += deeper(value[name], f"{path}.{name}" if path else name)
        return causes

    return check


def _set(node: Node, items: list[Any], path: str) -> list[Cause]:
    return [_duplicate(f"{path}[{index}]", items[index]) for index in _repeated(items)]


def _map(node: Node, items: list[Any], path: str) -> list[Cause]:
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            message = f"Invalid value: {shown(item)}: must be an object for an array of list-type map"
            return [Cause("FieldValueInvalid", f"{path}[{index}]", message)]
    keys = [{name: item[name] for name in node.list_map_keys if name in item} if item else {} for item in items]
    return [_duplicate(f"{path}[{index}]", keys[index]) for index in _repeated(keys)]


def _repeated(items: Iterable[Any]) -> list[int]:
    """Where something comes for the second time; the third is not reported again."""
    seen: dict[tuple[type, Any], int] = {}
    repeated = []
    for index, item in enumerate(items):
        key = (type(item), go_json(item) if isinstance(item, (dict, list)) else item)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            repeated.append(index)
    return repeated


def _duplicate(path: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", path, f"Duplicate value: {shown(value)}")
