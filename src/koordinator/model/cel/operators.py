"""Operators that do not evaluate all their arguments, and access to fields, which may be absent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.model.cel.budget import Meter
from koordinator.model.cel.errors import CostExceeded, EvaluationError
from koordinator.model.cel.values import NONE, LazyFields, MapList, Optional, SetList, type_name

Evaluate = Callable[[Meter], Any]
"""Raises EvaluationError and TakesLong."""
_LISTS: Final = (list, SetList, MapList)


def field_of(operand: Evaluate, name: str) -> Evaluate:
    """Of an object with a schema: null is as good as absent."""

    def field(meter: Meter) -> Any:
        of = operand(meter)
        meter.charge(1)
        if type(of) is not dict:
            return selected(of, name)
        value = of.get(name)
        if value is None:
            raise EvaluationError(f"no such key: {name}")
        return value

    return field


def truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvaluationError("no such overload")


def _and(args: list[Evaluate]) -> Evaluate:
    return _junction(args, absorbing=False)


def _or(args: list[Evaluate]) -> Evaluate:
    return _junction(args, absorbing=True)


def _junction(args: list[Evaluate], *, absorbing: bool) -> Evaluate:
    """An error on either side counts only when the other side does not decide; of two the first is reported."""

    def junction(meter: Meter) -> Any:
        failure: EvaluationError | None = None
        for side in args:
            try:
                if truth(side(meter)) is absorbing:
                    return absorbing
            except CostExceeded:
                raise
            except EvaluationError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return not absorbing

    return junction


def _conditional(args: list[Evaluate]) -> Evaluate:
    condition, then, otherwise = args
    return lambda meter: then(meter) if truth(condition(meter)) else otherwise(meter)


def _not_strictly_false(args: list[Evaluate]) -> Evaluate:
    def evaluate(meter: Meter) -> Any:
        meter.charge(1)
        try:
            return args[0](meter) is not False
        except CostExceeded:
            raise
        except EvaluationError:
            return True

    return evaluate


def optional_value(value: Any) -> Optional:
    if type(value) is Optional:
        return value
    raise EvaluationError("no such overload")


def has_field(of: Any, name: str, *, null: bool = True) -> bool:
    """``null``: whether a null counts."""
    if type(of) is dict:
        return name in of and (null or of[name] is not None)
    if type(of) is Optional:
        return of.present and has_field(of.value, name, null=null)
    if type(of) is LazyFields:
        return name in of.cel_fields
    raise EvaluationError("no such overload")


def selected(of: Any, name: str) -> Any:
    if type(of) is Optional:
        return _looked_up(of.value, name) if of.present else NONE
    if type(of) is dict:
        raise EvaluationError(f"no such key: {name}")
    if type(of) is LazyFields:
        return of.field(name)
    raise EvaluationError(f"unsupported index type '{type_name(of)}'" if isinstance(of, _LISTS) else "no such overload")


def _or_else(args: list[Evaluate]) -> Evaluate:
    def evaluate(meter: Meter) -> Any:
        of = optional_value(args[0](meter))
        return of if of.present else args[1](meter)

    return evaluate


def _or_value(args: list[Evaluate]) -> Evaluate:
    def evaluate(meter: Meter) -> Any:
        of = optional_value(args[0](meter))
        return of.value if of.present else args[1](meter)

    return evaluate


def _optional_select(args: list[Evaluate]) -> Evaluate:
    operand, name = args

    def evaluate(meter: Meter) -> Any:
        of = operand(meter)
        meter.charge(1)
        if type(of) is Optional:
            if not of.present:
                return NONE
            of = of.value
        return _looked_up(of, name(meter))

    return evaluate


def _looked_up(of: Any, key: Any) -> Optional:
    if type(of) is dict:
        return Optional(True, of[key]) if key in of else NONE
    if isinstance(of, list) and isinstance(key, int):
        return Optional(True, of[key]) if 0 <= key < len(of) else NONE
    raise EvaluationError("no such overload")


SPECIAL: Final[Mapping[str, Callable[[list[Evaluate]], Evaluate]]] = {
    "_&&_": _and,
    "_||_": _or,
    "_?_:_": _conditional,
    "@not_strictly_false": _not_strictly_false,
    "or": _or_else,
    "orValue": _or_value,
    "_?._": _optional_select,
    "_[?_]": _optional_select,
}
