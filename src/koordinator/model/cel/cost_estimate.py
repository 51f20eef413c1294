"""What an expression may cost at least and at most, by the greatest sizes of its data (cel-go, ``checker/cost.go``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.model.cel.checker import Checked
from koordinator.model.cel.functions import Overload
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

MOST: Final = (1 << 64) - 1
Path = tuple[str, ...]
"""``self``, names of fields, and ``@items``, ``@keys``, ``@values``; empty for what is not in the data."""
SizeOf = Callable[[Path], int | None]
"""The greatest size of what is at a path; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest, of a cost or of a size; what is too large for 64 bits is ``MOST``."""

    least: int
    most: int

    def __add__(self, other: Range) -> Range:
        return Range(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def __mul__(self, other: Range) -> Range:
        return Range(min(self.least * other.least, MOST), min(self.most * other.most, MOST))

    def scaled(self, factor: float) -> Range:
        return Range(_scaled(self.least, factor), _scaled(self.most, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.least, other.least), max(self.most, other.most))


def _scaled(amount: int, factor: float) -> int:
    product = float(amount) * factor
    return MOST if product >= 1.8446744073709552e19 else math.ceil(product)


def fixed(amount: int) -> Range:
    return Range(amount, amount)


ONE: Final = fixed(1)
NOTHING: Final = fixed(0)
_UNKNOWN: Final = Range(0, MOST)
_TRAVERSAL: Final = 0.1
_PATTERN: Final = 0.25


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


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call, for those who know what the call costs."""

    node: Node
    type: Type
    size: Range
    items: Range
    """The size of its elements."""


Estimate = tuple[Range, Range | None]
"""The cost of a call without its arguments, and the size of its result."""


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
        known = _BY_OVERLOAD.get(overload.id) or _BY_NAME.get(overload.name)
        cost, size = (known or _unit)(target, args)
        return cost + sum(costs, NOTHING), size

    def _conditional(self, node: Call, args: list[Argument], costs: list[Range]) -> Estimate:
        held = self._held(node.args[1])
        joined = held.union(self._held(node.args[2])) if held is not None else None
        if joined is not None:
            self._entries[node.id] = joined
        return costs[0] + costs[1].union(costs[2]), args[1].size.union(args[2].size)

    def _argument(self, node: Node) -> Argument:
        of = self._type(node)
        items = _UNKNOWN
        if of.kind == "list":
            path = self._path(node)
            most = self._size_of((*path, "@items")) if path else None
            items = Range(0, most) if most is not None else _UNKNOWN
            if of.params[0].kind in SCALARS:
                items = ONE
        return Argument(node, of, self._size(node), items)

    def _path(self, node: Node) -> Path:
        path = self._paths.get(node.id, ())
        return () if path and path[0] in (ACCUMULATOR, "@result") else path

    def _size(self, node: Node) -> Range:
        known = self._known(node)
        return known if known is not None else _UNKNOWN

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
Price = Callable[[Argument | None, Sequence[Argument]], Estimate]


def _unit(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    return ONE, None


def _subject(target: Argument | None, args: Sequence[Argument]) -> Argument:
    return target if target is not None else args[0]


def _traversed(factor: float = _TRAVERSAL, *, keeps_size: bool = False) -> Price:
    def price(target: Argument | None, args: Sequence[Argument]) -> Estimate:
        size = _subject(target, args).size
        return size.scaled(factor), size if keeps_size else None

    return price


def _of_argument(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    return args[0].size.scaled(_TRAVERSAL), None


def _each(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    of = _subject(target, args)
    if of.type.kind != "list":
        return of.size.scaled(_TRAVERSAL), None
    compared = ONE
    if of.type.params[0].kind in ("string", "bytes"):
        compared += of.items.scaled(_TRAVERSAL)
    return of.size * compared, None


def _matched(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    text = _subject(target, args).size
    return (text + ONE).scaled(_TRAVERSAL) * args[-1].size.scaled(_PATTERN), Range(0, text.most)


def _matched_bool(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    return _matched(target, args)[0], None


def _contained(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    return _subject(target, args).size.scaled(_TRAVERSAL) * args[0].size.scaled(_TRAVERSAL), None


def _compared(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    left, right = args[0], args[1]
    if left.type == right.type and left.type.name in _QUICK:
        return ONE, None
    smallest = min(left.size.most, right.size.most)
    return Range(1 if smallest else 0, smallest).scaled(_TRAVERSAL), None


def _concatenated(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    size = args[0].size + args[1].size
    return size.scaled(_TRAVERSAL), size


def _joined_lists(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    return ONE, args[0].size + args[1].size


def _replaced(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    size, old, new = _subject(target, args).size, args[0].size, args[1].size
    if not old.least:
        most = min(min(size.most + 1, MOST) * new.most, MOST) + size.most
    elif new.most <= old.least:
        most = size.most
    else:
        most = math.ceil(size.most / old.least) * new.most
    if not old.most:
        least = (size.least + 1) * new.least + size.least
    elif old.most <= new.least:
        least = size.least
    else:
        least = math.ceil(size.least / old.most) * new.least
    return size.scaled(2 * _TRAVERSAL), Range(min(least, MOST), min(most, MOST))


def _split(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    size = _subject(target, args).size
    most = size.most
    if len(args) > 1 and isinstance(args[1].node, Literal) and args[1].node.value >= 0:
        most = args[1].node.value
    return size.scaled(2 * _TRAVERSAL), Range(0, most)


def _join(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    of = _subject(target, args)
    size = of.size * of.items
    if args:
        size += args[0].size * Range(max(of.size.least - 1, 0), max(of.size.most - 1, 0))
    return size.scaled(_TRAVERSAL), size


def _contains_ip(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    cost = Range(8, 32).scaled(_TRAVERSAL)
    return cost + (args[0].size.scaled(_TRAVERSAL) if args[0].type.kind == "string" else NOTHING), None


def _contains_cidr(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    return _contains_ip(target, args)[0] + Range(4, 16).scaled(_TRAVERSAL) + ONE, None


def _validated(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    return args[0].size.scaled(_TRAVERSAL).scaled(128 * _PATTERN), None


def _list_made(factor: float) -> Price:
    def price(target: Argument | None, args: Sequence[Argument]) -> Estimate:
        size = _subject(target, args).size
        return size.scaled(factor) + fixed(11), size

    return price


def _ranged(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    node = args[0].node
    size = Range(0, MOST)
    if isinstance(node, Literal):
        size = fixed(max(node.value, 0))
    return size + fixed(11), size


def _sorted(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    of = args[0] if args else _subject(target, args)
    factor = 2 + (_TRAVERSAL if of.type.params and of.type.params[0].kind in ("string", "bytes") else 0)
    return (of.size * of.size).scaled(factor) + fixed(11), of.size


def _distinct(target: Argument | None, args: Sequence[Argument]) -> Estimate:
    size = _subject(target, args).size
    return (size * size).scaled(2) + fixed(11), size


def _paired(factor: int) -> Price:
    return lambda target, args: ((args[0].size * args[1].size).scaled(factor) + ONE, None)


def _fixed(amount: int) -> Price:
    return lambda target, args: (fixed(amount), None)


_QUICK: Final = frozenset(
    ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat")
)
_BY_NAME: Final[Mapping[str, Price]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _each),
    **dict.fromkeys(("url", "jsonpatch.escapeKey"), _traversed(keeps_size=True)),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _traversed(keeps_size=True)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _traversed()),
    "ip.isCanonical": _traversed(2 * _TRAVERSAL),
    "replace": _replaced,
    "split": _split,
    "join": _join,
    "find": _matched,
    "findAll": _matched,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validated,
    "check": _fixed(350_000),
    "_==_": _compared,
    "_!=_": _compared,
    "slice": _list_made(1),
    "flatten": _list_made(1),
    "reverse": _list_made(1),
    "lists.range": _ranged,
    "distinct": _distinct,
    "sort": _sorted,
    "@sortByAssociatedKeys": _sorted,
    "sets.contains": _paired(1),
    "sets.intersects": _paired(1),
    "sets.equivalent": _paired(2),
}
_BY_OVERLOAD: Final[Mapping[str, Price]] = {
    "string_format": _traversed(),
    "string_to_bytes": _traversed(keeps_size=True),
    "bytes_to_string": _traversed(keeps_size=True),
    "strings_quote": _traversed(),
    "string_to_ip": _traversed(),
    "starts_with_string": _of_argument,
    "ends_with_string": _of_argument,
    "in_list": lambda target, args: (args[1].size, None),
    "matches_string": _matched_bool,
    "contains_string": _contained,
    "list_reverse": _list_made(1),
    "add_string": _concatenated,
    "add_bytes": _concatenated,
    "add_list": _joined_lists,
    **{
        f"{name}_{kind}": _compared
        for name in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
}
