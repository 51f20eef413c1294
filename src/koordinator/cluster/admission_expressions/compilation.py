"""Expressions about requests, compiled, with the budget that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from koordinator.model.cel.errors import CompileError, EvaluationError
from koordinator.model.cel.program import Declarations, Program, compile_expression


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """One that is written, with its program or with what is wrong with it."""

    source: str
    program: Program | None
    error: str = ""


def compiled(source: str, declarations: Declarations, *kinds: str) -> Expression:
    """``kinds`` are those that the value may have; none: any."""
    try:
        program = compile_expression(source, declarations)
    except CompileError as error:
        return Expression(source, None, f"compilation failed: {error}")
    if kinds and program.type.kind not in kinds:
        wanted = f"must evaluate to {kinds[0]}"
        if len(kinds) > 1:
            names = " ".join("null_type" if kind == "null" else kind for kind in kinds)
            wanted = f"must evaluate to one of [{names}]"
        shown = "null_type" if program.type.kind == "null" else str(program.type)
        return Expression(source, None, f"{wanted} but got {shown}")
    return Expression(source, program)


class OutOfBudget(Exception):
    """Nothing further is evaluated."""

    def __init__(self) -> None:
        super().__init__("validation failed due to running out of cost budget, no further validation rules will be run")


class Budget:
    """What the expressions of one policy or webhook may still cost for one request."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> None:
        """Raises OutOfBudget."""
        self.left -= cost
        if self.left < 0:
            raise OutOfBudget

    def evaluate(self, expression: Expression, variables: Mapping[str, Any]) -> Any:
        """Raises EvaluationError in the words of the real server, and OutOfBudget."""
        if expression.program is None:
            raise EvaluationError(f"compilation error: {expression.error}")
        result = expression.program.evaluate(variables)
        self.spend(result.cost)
        if result.error is not None:
            raise EvaluationError(f"expression '{expression.source}' resulted in error: {result.error}")
        return result.value
