"""An expression, ready to be evaluated: what rules, match conditions, policies and selectors are compiled to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from koordinator.model.cel.budget import PER_CALL, Meter, take
from koordinator.model.cel.checker import Checked, check
from koordinator.model.cel.errors import CompileError, EvaluationError, Issue
from koordinator.model.cel.evaluator import evaluator_of
from koordinator.model.cel.functions import Functions, functions
from koordinator.model.cel.literals import literal_issues
from koordinator.model.cel.operators import Evaluate
from koordinator.model.cel.parser import parse
from koordinator.model.cel.types import Type


@lru_cache(maxsize=1)
def kubernetes_functions() -> Functions:
    """Those of Kubernetes 1.35. Made when they are first used: a server without expressions has no need of them."""
    from koordinator.model.cel.library.collections import COLLECTIONS, OPTIONALS
    from koordinator.model.cel.library.conversions import CONVERSIONS
    from koordinator.model.cel.library.formats import NAMED_FORMATS
    from koordinator.model.cel.library.formatting import FORMATTING
    from koordinator.model.cel.library.network import NETWORK
    from koordinator.model.cel.library.patterns import PATTERNS
    from koordinator.model.cel.library.quantities import QUANTITIES
    from koordinator.model.cel.library.standard import LAZY, STANDARD
    from koordinator.model.cel.library.texts import TEXTS

    return functions(
        LAZY,
        STANDARD,
        CONVERSIONS,
        OPTIONALS,
        TEXTS,
        PATTERNS,
        FORMATTING,
        COLLECTIONS,
        NETWORK,
        QUANTITIES,
        NAMED_FORMATS,
    )


def _no_objects(name: str) -> Mapping[str, Type] | None:
    return None


@dataclass(frozen=True, slots=True)
class Declarations:
    """What an expression may name."""

    variables: Mapping[str, Type]
    fields: Callable[[str], Mapping[str, Type] | None] = _no_objects
    """Name of an object type -> the types of its fields."""
    functions: Functions = field(default_factory=kubernetes_functions)


@dataclass(frozen=True, slots=True)
class Result:
    """Of one evaluation; a value or an error, and what either cost."""

    value: Any
    error: EvaluationError | None
    cost: int


class Program:
    """A compiled expression."""

    def __init__(self, source: str, checked: Checked) -> None:
        self.source = source
        self.checked = checked
        self._evaluate: Evaluate = evaluator_of(checked)

    @property
    def type(self) -> Type:
        return self.checked.type

    def uses(self, variable: str) -> bool:
        return variable in self.checked.variables

    def evaluate(self, variables: Mapping[str, Any], limit: int = PER_CALL) -> Result:
        """Never takes longer than the limit allows. Raises TakesLong when the caller's allowance is used up."""
        meter = Meter(dict(variables), limit)
        value: Any = None
        failure: EvaluationError | None = None
        try:
            value = self._evaluate(meter)
        except EvaluationError as error:
            failure = error
        except RecursionError:
            failure = EvaluationError("expression recursion limit exceeded")
        meter.close()
        return Result(value, failure, meter.cost)


_LETTER: Final = 8
"""Steps that it takes to compile one."""


def compile_expression(source: str, declarations: Declarations) -> Program:
    """Raises CompileError, whose text is that of the real server, and TakesLong."""
    take(len(source) * _LETTER)
    root = parse(source)
    checked = check(source, root, declarations.variables, declarations.functions, declarations.fields)
    issues: list[Issue] = literal_issues(checked)
    if issues:
        raise CompileError(source, issues)
    return Program(source, checked)
