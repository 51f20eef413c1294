"""What one call may cost at least and at most (cel-go, ``checker/cost.go``; k8s.io/apiserver, ``library/cost.go``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.model.cel.syntax import Literal, Node
from koordinator.model.cel.types import Type

MOST: Final = (1 << 64) - 1


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
UNKNOWN: Final = Range(0, MOST)
_TRAVERSAL: Final = 0.1
_PATTERN: Final = 0.25


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


Price = Callable[[Argument | None, Sequence[Argument]], Estimate]


def unit(target: Argument | None, args: Sequence[Argument]) -> Estimate:
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
BY_NAME: Final[Mapping[str, Price]] = {
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
BY_OVERLOAD: Final[Mapping[str, Price]] = {
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
