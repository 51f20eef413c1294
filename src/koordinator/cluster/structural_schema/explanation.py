"""Why a value does not fit its schema, in the words and the order of the real server; only called when it does not.

With an old value, what was wrong before and is unchanged is let pass (ratcheting), but never inside of ``allOf``,
``anyOf``, ``oneOf`` and ``not``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from koordinator.api.document import same
from koordinator.cluster.structural_schema.failure import Failure, Fault, Result
from koordinator.cluster.structural_schema.keywords import (
    Keyword,
    in_enum,
    of_format,
    of_lists,
    of_numbers,
    of_objects,
    of_strings,
    type_failure,
)
from koordinator.cluster.structural_schema.node import Node
from koordinator.cluster.structural_schema.validity import KINDS, type_validator

# Which old value a part of an updated object had: what was wrong before and has not changed is let pass.
#
# The real server (k8s.io/apiserver, cel/common) finds the old value of a field by its name, and that of an item only in
# a list of type ``map``, by its keys. A field that the schema does not name has no old value.


_ABSENT: Final = object()


class Correlated(NamedTuple):
    """A value with the one that it had before."""

    new: Any
    old: Any
    node: Node

    def member(self, name: str) -> Correlated | None:
        if not isinstance(self.new, dict) or not isinstance(self.old, dict):
            return None
        node = self.node.properties.get(name) or self.node.additional_node
        if node is None or name not in self.old or name not in self.new:
            return None
        return Correlated(self.new[name], self.old[name], node)

    def item(self, index: int) -> Correlated | None:
        node = self.node.items
        if self.node.list_type != "map" or node is None or not isinstance(self.old, list):
            return None
        keys = self._keys(self.new[index])
        for old in self.old:
            if keys is not None and self._keys(old) == keys:
                return Correlated(self.new[index], old, node)
        return None

    def unchanged(self) -> bool:
        """As the real server finds out: an object with a field that the schema does not name counts as changed."""
        if isinstance(self.new, dict) and isinstance(self.old, dict):
            members = [self.member(name) for name in self.new]
            return len(self.new) == len(self.old) and all(part is not None and part.unchanged() for part in members)
        if self.node.list_type == "map" and isinstance(self.new, list) and isinstance(self.old, list):
            items = [self.item(index) for index in range(len(self.new))]
            return len(self.new) == len(self.old) and all(part is not None and part.unchanged() for part in items)
        return same(self.new, self.old)

    def _keys(self, item: Any) -> list[Any] | None:
        if not isinstance(item, dict):
            return None
        keys = [item.get(name, _ABSENT) for name in self.node.list_map_keys]
        return None if _ABSENT in keys else [(type(key), key) for key in keys]


_GO_FORMATS: Final = {int: "int64", float: "float64"}


def explain(node: Node, value: Any, old: Correlated | None = None) -> list[Failure]:
    """``old`` holds ``value`` and what it replaces."""
    return list(_explain(node, value, "", old))


def _explain(node: Node, value: Any, path: str, correlated: Correlated | None) -> Result:
    result = _plain(node, value, path, correlated)
    if correlated is not None and not result.valid and correlated.unchanged():
        return Result(matched=result.matched)
    return result


def _plain(node: Node, value: Any, path: str, correlated: Correlated | None) -> Result:
    result = Result()
    if value is None:
        _null(node, path, result)
        return result
    if node.types or node.format:
        result.add(_typed(node, value, path))
        # A type that fits counts for itself and, as all keywords do, for having been evaluated.
        result.matched += 1 if result.failures else 2
    _junctors(node, value, path, result)
    if isinstance(value, str):
        _first(of_strings(node), value, path, result)
        if node.format:
            _every(of_format(node), value, path, result)
            result.matched += 1
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _every(of_numbers(node, whole=isinstance(value, int)), value, path, result)
        result.matched += 2
    elif isinstance(value, list):
        _items(node, value, path, correlated, result)
        result.matched += 2
    if node.enum and not in_enum(node, value):
        result.add([_not_in_enum(node, value, path)])
    result.matched += 1
    if isinstance(value, dict):
        _members(node, value, path, correlated, result)
        result.matched += 1
    result.matched += 1
    return result


def _null(node: Node, path: str, result: Result) -> None:
    if node.types and not node.nullable:
        result.add([type_failure(path, ",".join(node.types), "null")])
    else:
        result.matched += 1
    if node.enum:
        result.add([_not_in_enum(node, None, path)])


def _typed(node: Node, value: Any, path: str) -> list[Failure]:
    validator = type_validator(node, type(value))
    if validator is None or validator(value):
        return []
    if node.format and not isinstance(value, (str, list)):
        return [type_failure(path, node.format_name, _GO_FORMATS.get(type(value), ""))]
    return [type_failure(path, ",".join(node.types), KINDS[type(value)])]


def _first(keywords: Iterable[Keyword], value: Any, path: str, result: Result) -> None:
    failed = next((keyword for keyword in keywords if not keyword.holds(value)), None)
    if failed is not None:
        result.add([failed.failure(path, value)])
    result.matched += 1


def _every(keywords: Iterable[Keyword], value: Any, path: str, result: Result) -> None:
    result.add(keyword.failure(path, value) for keyword in keywords if not keyword.holds(value))


def _not_in_enum(node: Node, value: Any, path: str) -> Failure:
    return Failure(Fault.NOT_SUPPORTED, path, f"{path} in body should be one of {node.enum}", value, node.enum)


def _items(node: Node, items: list[Any], path: str, correlated: Correlated | None, result: Result) -> None:
    if node.items is not None:
        for index, item in enumerate(items):
            old = None if correlated is None else correlated.item(index)
            result.merge(_explain(node.items, item, f"{path}[{index}]", old))
    _every(of_lists(node), items, path, result)


def _members(node: Node, obj: dict[str, Any], path: str, correlated: Correlated | None, result: Result) -> None:
    _every(of_objects(node), obj, path, result)
    for name, value in obj.items():
        if name in node.properties:
            continue
        if node.additional is False:
            text = f"{path}.{name} in body is a forbidden property"
            result.add([Failure(Fault.INVALID, path, text, name)])
        elif (additional := node.additional_node) is not None:
            result.merge(_explain(additional, value, f"{path}.{name}", _member(correlated, path, name)))
    for name, part in node.properties.items():
        if name in obj:
            below = f"{path}.{name}" if path else name
            result.merge(_explain(part, obj[name], below, _member(correlated, path, name)))
    result.add(
        Failure(Fault.REQUIRED, f"{path}.{name}", f"{path}.{name} in body is required")
        for name in node.required
        if name not in obj
    )


def _member(correlated: Correlated | None, path: str, name: str) -> Correlated | None:
    if correlated is None or (not path and name in ("kind", "apiVersion")):
        return None
    return correlated.member(name)


def _junctors(node: Node, value: Any, path: str, result: Result) -> None:
    if node.any_of:
        _any_of(node, value, path, result)
    if node.one_of:
        _one_of(node, value, path, result)
    if node.all_of:
        _all_of(node, value, path, result)
    if node.negated is not None and _plain(node.negated, value, path, None).valid:
        result.add([_pathless(path, "must not validate the schema (not)")])
    result.matched += 2


def _any_of(node: Node, value: Any, path: str, result: Result) -> None:
    best: Result | None = None
    for part in node.any_of:
        found = _plain(part, value, path, None)
        if found.valid:
            result.merge(found)
            return
        if best is None or found.matched > best.matched:
            best = found
    result.add([_pathless(path, "must validate at least one schema (anyOf)")])
    if best is not None:
        result.merge(best)


def _one_of(node: Node, value: Any, path: str, result: Result) -> None:
    found = [_plain(part, value, path, None) for part in node.one_of]
    fitting = [part for part in found if part.valid]
    if len(fitting) == 1:
        result.merge(fitting[0])
        return
    how_many = f"Found {len(fitting)} valid alternatives" if fitting else "Found none valid"
    result.add([_pathless(path, f"must validate one and only one schema (oneOf). {how_many}")])
    if not fitting:
        result.merge(max(found, key=lambda part: part.matched))


def _all_of(node: Node, value: Any, path: str, result: Result) -> None:
    found = [_plain(part, value, path, None) for part in node.all_of]
    for part in found:
        result.merge(part)
    fitting = sum(part.valid for part in found)
    if fitting < len(found):
        none = "" if fitting else ". None validated"
        result.add([_pathless(path, f"must validate all the schemas (allOf){none}")])


def _pathless(path: str, sentence: str) -> Failure:
    return Failure(Fault.PATHLESS, path, f'"{path}" {sentence}')
