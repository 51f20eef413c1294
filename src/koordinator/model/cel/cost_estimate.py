"""What an expression may cost at least and at most, by the greatest sizes of its data (cel-go, ``checker/cost.go``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordinator.model.cel.checker import Checked
from koordinator.model.cel.functions import Overload
from koordinator.model.cel.prices import (
    BY_NAME,
    BY_OVERLOAD,
    MOST,
    NOTHING,
    ONE,
    UNKNOWN,
    Argument,
    Estimate,
    Range,
    fixed,
    unit,
)
from koordinator.model.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
)
from koordinator.model.cel.types import SCALARS, Type

Path = tuple[str, ...]
"""``self``, names of fields, and ``@items``, ``@keys``, ``@values``; empty for what is not in the data."""
SizeOf = Callable[[Path], int | None]
"""The greatest size of what is at a path; None where that is not known."""


@dataclass(frozen=True, slots=True)
class _Entries:
    """The sizes of what a list or a map holds."""

    is_list: bool
    key: Range
    value: Range

    def union(self, other: _Entries | None) -> _Entries | None:
        if other is None:
            return None
        return _Entries(self.is_list, self.key.union(other.key), self.value.union(other.value))


@dataclass(frozen=True, slots=True)
class _Local:
    """A variable of a fold."""

    path: Path
    size: Range | None
    entries: _Entries | None = None


def estimated_cost(checked: Checked, size_of: SizeOf) -> Range:
    return _Estimator(checked, size_of).cost(checked.root)


class _Estimator:
    def __init__(self, checked: Checked, size_of: SizeOf) -> None:
        self._checked = checked
        self._size_of = size_of
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Range:
        return _COSTS[type(node)](self, node)

    def _type(self, node: Node) -> Type:
        return self._checked.types[node.id]

    def literal(self, node: Literal) -> Range:
        return NOTHING

    def ident(self, node: Ident) -> Range:
        local = self._local(node.name)
        self._paths[node.id] = local.path if local is not None else (node.name,)
        return ONE

    def select(self, node: Select) -> Range:
        if node.test:
            return self.cost(node.operand)
        if node.id in self._checked.constants:
            return ONE
        total = self.cost(node.operand)
        if self._type(node.operand).kind in ("map", "struct", "param"):
            total += ONE
        path = self._path(node.operand)
        self._paths[node.id] = (*path, node.name)
        return total

    def list_literal(self, node: ListLiteral) -> Range:
        total, items = fixed(10), Range(MOST if node.items else 0, 0)
        for item in node.items:
            total += self.cost(item)
            items = items.union(self._size(item))
        self._entries[node.id] = _Entries(True, ONE, items)
        return total

    def map_literal(self, node: MapLiteral) -> Range:
        total, keys = fixed(30), Range(MOST if node.entries else 0, 0)
        values = keys
        for entry in node.entries:
            total += self.cost(entry.key) + self.cost(entry.value)
            keys, values = keys.union(self._size(entry.key)), values.union(self._size(entry.value))
        self._entries[node.id] = _Entries(False, keys, values)
        return total

    def comprehension(self, node: Comprehension) -> Range:
        total = self.cost(node.range) + self.cost(node.start)
        self._push(node.accumulator, _Local(self._path(node.start), self._known(node.start), self._held(node.start)))
        if node.variable == "#unused":
            total += self.cost(node.result)
            self._pop(node.accumulator)
            self._copy(node, node.result)
            return total
        self._push_elements(node)
        loop = self.cost(node.condition)
        step = self.cost(node.step)
        for name in (node.variable, *((node.second,) if node.second else ())):
            self._pop(name)
        total += self.cost(node.result)
        self._pop(node.accumulator)
        count = self._size(node.range)
        self._result_size(node, count)
        return total + count * (step + loop)

    def _result_size(self, node: Comprehension, count: Range) -> None:
        if isinstance(node.start, Literal):
            if (size := self._known(node.start)) is not None:
                self._sizes[node.id] = size
        elif isinstance(node.start, (ListLiteral, MapLiteral)):
            self._sizes[node.id] = count
            if (held := self._held(node.step)) is not None:
                self._entries[node.id] = held

    def _push_elements(self, node: Comprehension) -> None:
        held, path = self._held(node.range), self._path(node.range)
        is_list = held.is_list if held is not None else self._type(node.range).kind == "list"
        key = _Local((*path, "@indices" if is_list else "@keys"), held.key if held else None)
        value = _Local((*path, "@items" if is_list else "@values"), held.value if held else None)
        if node.second:
            self._push(node.variable, key)
            self._push(node.second, value)
        else:
            self._push(node.variable, value if is_list else key)

    def call(self, node: Call) -> Range:
        if node.function == "dyn" and len(node.args) == 1:
            total = self.cost(node.args[0]) + ONE
            self._copy(node, node.args[0])
            return total
        costs = [self.cost(arg) for arg in node.args]
        args = [self._argument(arg) for arg in node.args]
        target_cost = self.cost(node.target) if node.target is not None else NOTHING
        target = self._argument(node.target) if node.target is not None else None
        total, size = Range(MOST, 0), None
        for overload in self._checked.overloads.get(node.id, ()):
            cost, result = self._overload(node, overload, target, args, costs)
            total = total.union(cost)
            size = size if result is None else result if size is None else size.union(result)
        if size is not None:
            self._sizes[node.id] = size
        self._element_path(node)
        return total + target_cost if total.least <= total.most else ONE + sum(costs, NOTHING)

    def _element_path(self, node: Call) -> None:
        """What an index finds is an element of the data."""
        if node.function not in ("_[_]", "_[?_]"):
            return
        of, path = self._type(node.args[0]), self._path(node.args[0])
        self._paths[node.id] = (*path, "@items" if of.kind == "list" else "@values") if path else ()

    def _overload(
        self, node: Call, overload: Overload, target: Argument | None, args: list[Argument], costs: list[Range]
    ) -> Estimate:
        if node.function in ("_&&_", "_||_"):
            return Range(costs[0].least, (costs[0] + costs[1]).most), None
        if node.function == "_?_:_":
            return self._conditional(node, args, costs)
        if node.function == "_+_" and overload.id in ("add_string", "add_bytes", "add_list"):
            held = self._held(node.args[0])
            joined = held.union(self._held(node.args[1])) if held is not None else None
            if joined is not None:
                self._entries[node.id] = joined
        known = BY_OVERLOAD.get(overload.id) or BY_NAME.get(overload.name)
        cost, size = (known or unit)(target, args)
        return cost + sum(costs, NOTHING), size

    def _conditional(self, node: Call, args: list[Argument], costs: list[Range]) -> Estimate:
        held = self._held(node.args[1])
        joined = held.union(self._held(node.args[2])) if held is not None else None
        if joined is not None:
            self._entries[node.id] = joined
        return costs[0] + costs[1].union(costs[2]), args[1].size.union(args[2].size)

    def _argument(self, node: Node) -> Argument:
        of = self._type(node)
        items = UNKNOWN
        if of.kind == "list":
            path = self._path(node)
            most = self._size_of((*path, "@items")) if path else None
            items = Range(0, most) if most is not None else UNKNOWN
            if of.params[0].kind in SCALARS:
                items = ONE
        return Argument(node, of, self._size(node), items)

    def _path(self, node: Node) -> Path:
        path = self._paths.get(node.id, ())
        return () if path and path[0] in (ACCUMULATOR, "@result") else path

    def _size(self, node: Node) -> Range:
        known = self._known(node)
        return known if known is not None else UNKNOWN

    def _known(self, node: Node) -> Range | None:
        if node.id in self._sizes:
            return self._sizes[node.id]
        if isinstance(node, (ListLiteral, MapLiteral)):
            return fixed(len(node.items if isinstance(node, ListLiteral) else node.entries))
        if isinstance(node, Literal):
            return fixed(len(node.value) if isinstance(node.value, (str, bytes)) else 1)
        path = self._path(node)
        most = self._size_of(path) if path else None
        if most is not None:
            return Range(0, most)
        return self._by_type(node)

    def _by_type(self, node: Node) -> Range | None:
        of = self._type(node)
        if (of.params[0] if of.name == "optional_type" else of).kind in SCALARS:
            return ONE
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.size if local is not None else None

    def _held(self, node: Node) -> _Entries | None:
        if node.id in self._entries:
            return self._entries[node.id]
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.entries if local is not None else None

    def _copy(self, node: Node, source: Node) -> None:
        if (size := self._known(source)) is not None:
            self._sizes[node.id] = size
        if (held := self._held(source)) is not None:
            self._entries[node.id] = held
        self._paths[node.id] = self._path(source)

    def _local(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self._locals[name].pop()


_COSTS: Final[Mapping[type[Node], Callable[[_Estimator, Any], Range]]] = {
    Literal: _Estimator.literal,
    Ident: _Estimator.ident,
    Select: _Estimator.select,
    Call: _Estimator.call,
    ListLiteral: _Estimator.list_literal,
    MapLiteral: _Estimator.map_literal,
    Comprehension: _Estimator.comprehension,
}
