"""From a checked expression to closures that evaluate it. Each charges what it costs to the meter that it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from koordinator.model.cel.budget import Meter
from koordinator.model.cel.checker import Checked
from koordinator.model.cel.cost import LIST, MAP, Cost, cost_of, result_cost
from koordinator.model.cel.errors import CostExceeded, EvaluationError
from koordinator.model.cel.functions import Overload, accepts
from koordinator.model.cel.operators import SPECIAL, Evaluate, field_of, has_field, optional_value, selected, truth
from koordinator.model.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
)
from koordinator.model.cel.values import Failure, TypeValue

_STATIC: Final = frozenset(
    ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "list", "map", "opaque")
)
"""Kinds whose values are sure to have the type that the checker says."""


def evaluator_of(checked: Checked) -> Evaluate:
    return _Evaluators(checked).of(checked.root)


class _Evaluators:
    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    def of(self, node: Node) -> Evaluate:
        if node.id in self._checked.constants:
            return _type_constant(self._checked.constants[node.id])
        if node.id in self._checked.dotted:
            return _variable(self._checked.dotted[node.id])
        return _MAKERS[type(node)](self, node)

    def literal(self, node: Literal) -> Evaluate:
        value = node.value
        return lambda meter: value

    def ident(self, node: Ident) -> Evaluate:
        return _variable(node.name.removeprefix("."))

    def select(self, node: Select) -> Evaluate:
        operand, name = self.of(node.operand), node.name
        if node.test and self._checked.types[node.operand.id].kind == "struct":
            return lambda meter: has_field(operand(meter), name, null=False)
        if node.test:
            return lambda meter: has_field(operand(meter), name)
        if self._checked.types[node.operand.id].kind == "struct":
            return field_of(operand, name)

        def select(meter: Meter) -> Any:
            of = operand(meter)
            meter.charge(1)
            if type(of) is dict and name in of:
                return of[name]
            return selected(of, name)

        return select

    def call(self, node: Call) -> Evaluate:
        nodes = ([node.target] if node.target is not None else []) + node.args
        args = [self.of(arg) for arg in nodes]
        special = SPECIAL.get(node.function)
        if special is not None:
            return special(args)
        overloads = self._checked.overloads[node.id]
        kinds = [self._checked.types[arg.id].kind for arg in nodes]
        if len(overloads) == 1 and all(kind in _STATIC for kind in kinds):
            return _called(overloads[0], args)
        return _dispatched(node.function, overloads, args)

    def list_literal(self, node: ListLiteral) -> Evaluate:
        items, optional = [self.of(item) for item in node.items], node.optional

        def build(meter: Meter) -> Any:
            values: list[Any] = []
            for index, item in enumerate(items):
                value = item(meter)
                if index not in optional:
                    values.append(value)
                elif optional_value(value).present:
                    values.append(value.value)
            meter.charge(LIST)
            return values

        return build

    def map_literal(self, node: MapLiteral) -> Evaluate:
        entries = [(self.of(entry.key), self.of(entry.value), entry.optional) for entry in node.entries]

        def build(meter: Meter) -> Any:
            values: dict[Any, Any] = {}
            for make_key, make_value, optional in entries:
                key, value = make_key(meter), make_value(meter)
                if optional:
                    if not optional_value(value).present:
                        continue
                    value = value.value
                if key in values:
                    raise EvaluationError(f"Failed with repeated key {key}")
                values[key] = value
            meter.charge(MAP)
            return values

        return build

    def comprehension(self, node: Comprehension) -> Evaluate:
        over, start, result = self.of(node.range), self.of(node.start), self.of(node.result)
        if node.variable == "#unused":
            return _bound(node.accumulator, start, result)
        ends_early = not isinstance(node.condition, Literal)
        condition = self.of(node.condition) if ends_early else None
        step, names = self._step(node), (node.variable, node.second)
        accumulator = node.accumulator

        def fold(meter: Meter) -> Any:
            elements = _elements(over(meter), bool(names[1]))
            variables = meter.variables
            outer = {name: variables[name] for name in (accumulator, *names) if name in variables}
            variables[accumulator] = start(meter)
            for first, second in elements:
                if condition is not None and condition(meter) is not True:
                    break
                variables[names[0]] = first
                if names[1]:
                    variables[names[1]] = second
                variables[accumulator] = _stepped(step, meter) if ends_early else step(meter)
            try:
                return result(meter)
            finally:
                for name in (accumulator, *names):
                    variables.pop(name, None)
                variables.update(outer)

        return fold

    def _step(self, node: Comprehension) -> Evaluate:
        """The list of ``map`` and ``filter`` grows in place, since nothing else sees it while it grows."""
        step = node.step
        if isinstance(step, Call) and step.function == "_?_:_" and _grows(step.args[1], node.accumulator):
            test, grow, same = self.of(step.args[0]), self._grown(step.args[1]), self.of(step.args[2])
            return lambda meter: grow(meter) if truth(test(meter)) else same(meter)
        return self._grown(step) if _grows(step, node.accumulator) else self.of(step)

    def _grown(self, step: Node) -> Evaluate:
        assert isinstance(step, Call)
        if step.function != "_+_":
            return self.of(step)
        before, added = self.of(step.args[0]), self.of(step.args[1])

        def grow(meter: Meter) -> Any:
            items = before(meter)
            items.extend(added(meter))
            meter.charge(1)
            return items

        return grow


def _grows(step: Node, accumulator: str) -> bool:
    """``accumulator + [item]``, of a list literal that the macro has made."""
    if not isinstance(step, Call) or len(step.args) != 2:
        return False
    left, right = step.args
    return isinstance(left, Ident) and left.name == accumulator and isinstance(right, ListLiteral)


def _variable(name: str) -> Evaluate:
    def variable(meter: Meter) -> Any:
        meter.charge(1)
        try:
            value = meter.variables[name]
        except KeyError:
            raise EvaluationError(f"no such attribute(s): {name}") from None
        if type(value) is Failure:
            raise value.error
        return value

    return variable


def _type_constant(name: str) -> Evaluate:
    value = TypeValue(name)

    def constant(meter: Meter) -> Any:
        meter.charge(1)
        return value

    return constant


def _stepped(step: Evaluate, meter: Meter) -> Any:
    """A step whose error a later element may still make good: ``[a, b].exists(x, …)``."""
    try:
        return step(meter)
    except CostExceeded:
        raise
    except EvaluationError as error:
        return Failure(error)


def _elements(over: Any, pairs: bool) -> Iterable[tuple[Any, Any]]:
    if isinstance(over, list):
        return enumerate(list(over)) if pairs else ((item, None) for item in list(over))
    if type(over) is dict:
        return list(over.items())
    raise EvaluationError("no such overload")


def _bound(name: str, start: Evaluate, result: Evaluate) -> Evaluate:
    def bound(meter: Meter) -> Any:
        meter.charge(LIST)
        before = meter.variables.get(name, bound)
        meter.variables[name] = start(meter)
        try:
            return result(meter)
        finally:
            del meter.variables[name]
            if before is not bound:
                meter.variables[name] = before

    return bound


def _called(overload: Overload, args: list[Evaluate]) -> Evaluate:
    """Of the one overload that it can be."""
    run, cost, metered = overload.run, cost_of(overload), overload.metered
    if len(args) == 2 and cost is None and not metered:
        first, second = args

        def two(meter: Meter) -> Any:
            left, right = first(meter), second(meter)
            meter.charge(1)
            return run(left, right)

        return two

    def called(meter: Meter) -> Any:
        return _run(overload, cost, meter, tuple([arg(meter) for arg in args]))

    return called


def _run(overload: Overload, cost: Cost | None, meter: Meter, values: tuple[Any, ...]) -> Any:
    meter.charge(1 if cost is None else cost(values))
    result = overload.run(meter, *values) if overload.metered else overload.run(*values)
    if overload.name == "join":
        meter.charge(result_cost(overload, result))
    return result


def _dispatched(function: str, overloads: tuple[Overload, ...], args: list[Evaluate]) -> Evaluate:
    """By the types that the values turn out to have."""
    priced = [(overload, cost_of(overload)) for overload in overloads]

    def dispatched(meter: Meter) -> Any:
        values = tuple([arg(meter) for arg in args])
        for overload, cost in priced:
            if all(accepts(param, value) for param, value in zip(overload.params, values, strict=True)):
                return _run(overload, cost, meter, values)
        raise EvaluationError("no such overload")

    return dispatched


_MAKERS: Final[Mapping[type[Node], Callable[[_Evaluators, Any], Evaluate]]] = {
    Literal: _Evaluators.literal,
    Ident: _Evaluators.ident,
    Select: _Evaluators.select,
    Call: _Evaluators.call,
    ListLiteral: _Evaluators.list_literal,
    MapLiteral: _Evaluators.map_literal,
    Comprehension: _Evaluators.comprehension,
}
