"""Calls that are no functions: ``has``, ``all``, ``exists``, ``map`` … become selections and folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.model.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Entry,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
)


class MacroError(Exception):
    """A macro is called with arguments that it cannot take."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        super().__init__(message)


class Builder:
    """Makes nodes, each with a number of its own."""

    def __init__(self) -> None:
        self._last = 0

    def id(self) -> int:
        self._last += 1
        return self._last

    def literal(self, position: int, value: Any) -> Node:
        return Literal(self.id(), position, value)

    def ident(self, position: int, name: str) -> Node:
        return Ident(self.id(), position, name)

    def call(self, position: int, function: str, *args: Node) -> Node:
        return Call(self.id(), position, function, list(args))

    def member(self, position: int, target: Node, function: str, *args: Node) -> Node:
        return Call(self.id(), position, function, list(args), target)

    def items(self, position: int, *items: Node) -> Node:
        return ListLiteral(self.id(), position, list(items))


class _Macro:
    """One use of a macro, and the nodes that it is made of."""

    def __init__(self, builder: Builder, position: int, target: Node, variables: tuple[str, ...]) -> None:
        self._builder = builder
        self._position = position
        self._target = target
        self._variables = variables

    def accumulated(self) -> Node:
        return self._builder.ident(self._position, ACCUMULATOR)

    def literal(self, value: Any) -> Node:
        return self._builder.literal(self._position, value)

    def call(self, function: str, *args: Node) -> Node:
        return self._builder.call(self._position, function, *args)

    def items(self, *items: Node) -> Node:
        return self._builder.items(self._position, *items)

    def fold(self, start: Node, condition: Node, step: Node, result: Node | None = None) -> Node:
        first, second = (*self._variables, "")[:2]
        return Comprehension(
            self._builder.id(), self._position, self._target, first, second, ACCUMULATOR,
            start, condition, step, result if result is not None else self.accumulated(),
        )  # fmt: skip

    def all(self, predicate: Node) -> Node:
        condition = self.call("@not_strictly_false", self.accumulated())
        return self.fold(self.literal(True), condition, self.call("_&&_", self.accumulated(), predicate))

    def exists(self, predicate: Node) -> Node:
        condition = self.call("@not_strictly_false", self.call("!_", self.accumulated()))
        return self.fold(self.literal(False), condition, self.call("_||_", self.accumulated(), predicate))

    def exists_one(self, predicate: Node) -> Node:
        counted = self.call("_+_", self.accumulated(), self.literal(1))
        step = self.call("_?_:_", predicate, counted, self.accumulated())
        return self.fold(
            self.literal(0), self.literal(True), step, self.call("_==_", self.accumulated(), self.literal(1))
        )

    def collect(self, predicate: Node | None, transform: Node) -> Node:
        """A list of what is made of each element that fits."""
        return self._kept(self.items(), predicate, self.call("_+_", self.accumulated(), self.items(transform)))

    def collect_map(self, predicate: Node | None, *inserted: Node) -> Node:
        start = MapLiteral(self._builder.id(), self._position, list[Entry]())
        return self._kept(start, predicate, self.call("cel.@mapInsert", self.accumulated(), *inserted))

    def key(self) -> Node:
        return self._builder.ident(self._position, self._variables[0])

    def _kept(self, start: Node, predicate: Node | None, step: Node) -> Node:
        if predicate is not None:
            step = self.call("_?_:_", predicate, step, self.accumulated())
        return self.fold(start, self.literal(True), step)


def expand(builder: Builder, position: int, function: str, target: Node | None, args: list[Node]) -> Node | None:
    """What a call is when it is one of a macro; None when it is an ordinary call. Raises MacroError."""
    if target is None:
        return _has(builder, position, args[0]) if function == "has" and len(args) == 1 else None
    if (optional := _OPTIONAL.get(function)) is not None and len(args) == 2:
        return optional(builder, position, target, args)
    found = _MACROS.get((function, len(args)))
    if found is None:
        return None
    count, make = found
    names = tuple(_variable(arg) for arg in args[:count])
    if len(set(names)) < len(names):
        raise MacroError(args[1].position, f"duplicate variable name: {names[0]}")
    return make(_Macro(builder, position, target, names), args[count:])


def _variable(arg: Node) -> str:
    if not isinstance(arg, Ident):
        raise MacroError(arg.position, "argument must be a simple name")
    if arg.name in (ACCUMULATOR, "__result__"):
        raise MacroError(arg.position, "iteration variable overwrites accumulator variable")
    return arg.name


def _has(builder: Builder, position: int, arg: Node) -> Node:
    if not isinstance(arg, Select) or arg.test:
        raise MacroError(arg.position, "invalid argument to has() macro")
    return Select(builder.id(), position, arg.operand, arg.name, test=True)


def _filter(macro: _Macro, args: list[Node]) -> Node:
    return macro.collect(args[0], macro.key())


def _optional_map(builder: Builder, position: int, target: Node, args: list[Node]) -> Node:
    bound = builder.call(position, "optional.of", _bound(builder, position, target, args))
    return _if_present(builder, position, target, bound)


def _optional_flat_map(builder: Builder, position: int, target: Node, args: list[Node]) -> Node:
    return _if_present(builder, position, target, _bound(builder, position, target, args))


def _bound(builder: Builder, position: int, target: Node, args: list[Node]) -> Node:
    """The second argument, with the value of the target under the name of the first: a fold over nothing."""
    name, body = args
    if not isinstance(name, Ident):
        raise MacroError(name.position, "optMap() variable name must be a simple identifier")
    value = builder.member(position, target, "value")
    false, same = builder.literal(position, False), builder.ident(position, name.name)
    nothing = builder.items(position)
    return Comprehension(builder.id(), position, nothing, "#unused", "", name.name, value, false, same, body)


def _if_present(builder: Builder, position: int, target: Node, then: Node) -> Node:
    none = builder.call(position, "optional.none")
    return builder.call(position, "_?_:_", builder.member(position, target, "hasValue"), then, none)


def _sort_by(builder: Builder, position: int, target: Node, args: list[Node]) -> Node:
    """``list.sortBy(x, key)``: the list is named, since it is sorted by what is made of it."""
    if not isinstance(args[0], Ident):
        raise MacroError(args[0].position, "sortBy variable name must be a simple identifier")
    keys = _Macro(builder, position, builder.ident(position, _SORTED), (args[0].name,)).collect(None, args[1])
    result = builder.member(position, builder.ident(position, _SORTED), "@sortByAssociatedKeys", keys)
    false, same = builder.literal(position, False), builder.ident(position, _SORTED)
    nothing = builder.items(position)
    return Comprehension(builder.id(), position, nothing, "#unused", "", _SORTED, target, false, same, result)


_SORTED: Final = "@__sortBy_input__"
_OPTIONAL: Final[Mapping[str, Callable[[Builder, int, Node, list[Node]], Node]]] = {
    "optMap": _optional_map,
    "optFlatMap": _optional_flat_map,
    "sortBy": _sort_by,
}
_MACROS: Final[Mapping[tuple[str, int], tuple[int, Callable[[_Macro, list[Node]], Node]]]] = {
    ("all", 2): (1, lambda macro, args: macro.all(args[0])),
    ("exists", 2): (1, lambda macro, args: macro.exists(args[0])),
    ("exists_one", 2): (1, lambda macro, args: macro.exists_one(args[0])),
    ("existsOne", 2): (1, lambda macro, args: macro.exists_one(args[0])),
    ("map", 2): (1, lambda macro, args: macro.collect(None, args[0])),
    ("map", 3): (1, lambda macro, args: macro.collect(args[0], args[1])),
    ("filter", 2): (1, _filter),
    ("all", 3): (2, lambda macro, args: macro.all(args[0])),
    ("exists", 3): (2, lambda macro, args: macro.exists(args[0])),
    ("existsOne", 3): (2, lambda macro, args: macro.exists_one(args[0])),
    ("exists_one", 3): (2, lambda macro, args: macro.exists_one(args[0])),
    ("transformList", 3): (2, lambda macro, args: macro.collect(None, args[0])),
    ("transformList", 4): (2, lambda macro, args: macro.collect(args[0], args[1])),
    ("transformMap", 3): (2, lambda macro, args: macro.collect_map(None, macro.key(), args[0])),
    ("transformMap", 4): (2, lambda macro, args: macro.collect_map(args[0], macro.key(), args[1])),
    ("transformMapEntry", 3): (2, lambda macro, args: macro.collect_map(None, args[0])),
    ("transformMapEntry", 4): (2, lambda macro, args: macro.collect_map(args[0], args[1])),
}
"""(name, arguments) -> how many variables come first, and what is made of the rest."""
