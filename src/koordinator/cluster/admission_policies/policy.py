"""One policy, ready to be evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.admission_expressions.compilation import Budget, Expression, OutOfBudget, compiled
from koordinator.cluster.admission_expressions.declarations import request_declarations
from koordinator.cluster.admission_expressions.match_conditions import ConditionError, MatchConditions
from koordinator.cluster.admission_policies.constraints import Constraints
from koordinator.model.cel.budget import PER_OBJECT
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.program import Result
from koordinator.model.cel.types import DYN, Type
from koordinator.model.cel.values import LazyFields, type_name

_LONGEST_MESSAGE: Final = 5 * 1024


@dataclass(frozen=True, slots=True)
class Denial:
    """What one expression has against a request."""

    message: str
    reason: str = "Invalid"


@dataclass(frozen=True, slots=True)
class _Validation:
    expression: Expression
    said: Expression | None
    message: str
    reason: str


class Policy:
    """Its expressions are compiled when they are first needed."""

    def __init__(self, document: Document) -> None:
        spec = document["spec"]
        self.name: str = document["metadata"]["name"]
        self.constraints = Constraints.parse(spec.get("matchConstraints") or {})
        self.parameter_kind: Document | None = spec.get("paramKind")
        self._fails_closed = spec.get("failurePolicy") != "Ignore"
        has_parameters = self.parameter_kind is not None
        self._conditions = MatchConditions(spec.get("matchConditions") or (), params=has_parameters)
        self._spec = spec
        self._variables: dict[str, Expression] | None = None
        self._validations: list[_Validation] = []
        self._annotations: list[Expression] = []

    def failure(self, message: str) -> list[Denial]:
        """What becomes of an error, by the failure policy."""
        return [Denial(message, "")] if self._fails_closed else []

    def decide(self, variables: dict[str, Any]) -> list[Denial]:
        """Why the request is refused; ``variables`` are those of the request, and ``params``."""
        try:
            if self._conditions and not self._conditions.hold(variables):
                return []
            return self._evaluate(variables)
        except (ConditionError, OutOfBudget) as error:
            return self.failure(str(error))

    def _evaluate(self, variables: dict[str, Any]) -> list[Denial]:
        self._compile()
        budget = Budget(PER_OBJECT)
        bound = self._bound(variables, budget)
        failed: list[tuple[_Validation, str]] = []
        for validation in self._validations:
            try:
                if budget.evaluate(validation.expression, bound) is not True:
                    failed.append((validation, ""))
            except EvaluationError as error:
                failed.append((validation, str(error)))
        denials: list[Denial] = []
        for validation, why in failed:
            denials += self.failure(why) if why else [self._denial(validation, bound, budget)]
        return denials + self._annotated(self._bound(variables, Budget(PER_OBJECT)))

    def _denial(self, validation: _Validation, variables: dict[str, Any], budget: Budget) -> Denial:
        said = ""
        if validation.said is not None:
            try:
                value = budget.evaluate(validation.said, variables)
                said = value.strip() if isinstance(value, str) else ""
            except EvaluationError:
                said = ""  # the message of the author serves as well
        if "\n" in said or len(said.encode()) > _LONGEST_MESSAGE:
            said = ""
        default = validation.message or f"failed expression: {validation.expression.source.strip()}"
        return Denial(said or default, validation.reason)

    def _annotated(self, variables: dict[str, Any]) -> list[Denial]:
        """There is no audit log; what cannot be evaluated refuses all the same."""
        budget, denials = Budget(PER_OBJECT), []
        for annotation in self._annotations:
            try:
                value = budget.evaluate(annotation, variables)
            except EvaluationError as error:
                denials += self.failure(str(error))
                continue
            if value is not None and not isinstance(value, str):
                why = f"resulted in unsupported return type: {type_name(value)}"
                why += ". Return type must be either string or null."
                denials.append(Denial(f"valueExpression '{annotation.source}' {why}", ""))
        return denials

    def _bound(self, variables: dict[str, Any], budget: Budget) -> dict[str, Any]:
        """With the variables of the policy, each evaluated when an expression first names it."""
        bound = dict(variables)
        composed = self._variables or {}

        def evaluate(name: str) -> Any:
            program = composed[name].program
            if program is None:
                raise EvaluationError(f'composited variable "{name}" fails to compile: {composed[name].error}')
            result: Result = program.evaluate(bound)
            budget.spend(result.cost)
            if result.error is not None:
                raise EvaluationError(f'composited variable "{name}" fails to evaluate: {result.error}')
            return result.value

        bound["variables"] = LazyFields({name: lambda name=name: evaluate(name) for name in composed})  # type: ignore[misc]
        return bound

    def _compile(self) -> None:
        if self._variables is not None:
            return
        types: dict[str, Type] = {}
        variables: dict[str, Expression] = {}
        has_parameters, composes = self.parameter_kind is not None, bool(self._spec.get("variables"))
        for variable in self._spec.get("variables") or ():
            known = request_declarations(params=has_parameters, variables=dict(types))
            expression = variables[variable["name"]] = compiled(variable.get("expression") or "", known)
            types[variable["name"]] = expression.program.type if expression.program is not None else DYN
        declarations = request_declarations(params=has_parameters, variables=types if composes else None)
        unauthorized = request_declarations(
            params=has_parameters, authorizer=False, variables=types if composes else None
        )
        self._validations = [
            _Validation(
                compiled(validation.get("expression") or "", declarations, "bool"),
                compiled(said, unauthorized, "string") if (said := validation.get("messageExpression")) else None,
                (validation.get("message") or "").strip(),
                validation.get("reason") or "Invalid",
            )
            for validation in self._spec.get("validations") or ()
        ]
        self._annotations = [
            compiled((annotation.get("valueExpression") or "").strip(), declarations, "string", "null")
            for annotation in self._spec.get("auditAnnotations") or ()
        ]
        self._variables = variables
