"""``matchConditions`` of webhooks and policies: whether a request that the rules name concerns them after all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.admission_expressions.compilation import Budget, Expression, OutOfBudget, compiled
from koordinator.cluster.admission_expressions.declarations import request_declarations
from koordinator.model.cel.budget import PER_MATCH_CONDITIONS
from koordinator.model.cel.errors import EvaluationError


class ConditionError(KoordinatorError):
    """None of the conditions is false, and some cannot be evaluated: the failure policy says what follows."""


class MatchConditions:
    """Compiled when they are first needed."""

    def __init__(self, documents: Sequence[Document], *, params: bool = False) -> None:
        self._documents = documents
        self._params = params
        self._expressions: list[Expression] | None = None

    def __bool__(self) -> bool:
        return bool(self._documents)

    def hold(self, variables: Mapping[str, Any]) -> bool:
        """One that is false decides, whatever becomes of the others. Raises ConditionError."""
        budget, errors = Budget(PER_MATCH_CONDITIONS), []
        results: list[Any] = []
        for expression in self._compiled():
            try:
                results.append(budget.evaluate(expression, variables))
            except EvaluationError as error:
                errors.append(str(error))
            except OutOfBudget as error:
                raise ConditionError(str(error)) from error
        if False in results:
            return False
        if errors:
            raise ConditionError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True

    def _compiled(self) -> list[Expression]:
        if self._expressions is None:
            declarations = request_declarations(params=self._params)
            self._expressions = [
                compiled((document.get("expression") or "").strip(), declarations, "bool")
                for document in self._documents
            ]
        return self._expressions
