"""The rules of a schema (x-kubernetes-validations), compiled, and what they say of an object that is written.

The order of the checks, the budget and the words are those of the real server (k8s.io/apiextensions-apiserver,
``schema/cel/validation.go``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.structural_schema.explanation import Correlated
from koordinator.cluster.structural_schema.failure import NO_FIELD, shown
from koordinator.cluster.structural_schema.node import Node
from koordinator.cluster.structural_schema.rule_types import Declared, declared, escape
from koordinator.model.cel.budget import PER_OBJECT
from koordinator.model.cel.errors import CompileError, CostExceeded, EvaluationError
from koordinator.model.cel.program import Declarations, Program, Result, compile_expression
from koordinator.model.cel.types import optional_of
from koordinator.model.cel.values import NONE, Optional

_LONGEST_MESSAGE: Final = 5 * 1024
_OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One rule, or why there is none."""

    document: Document
    program: Program | None
    error: str
    message: Program | None
    message_error: str
    field_path: str

    @property
    def uses_old(self) -> bool:
        return self.program is not None and self.program.uses("oldSelf")

    @property
    def optional_old(self) -> bool:
        return bool(self.document.get("optionalOldSelf"))

    @property
    def shown(self) -> str:
        return ((self.document.get("message") or "").strip()) or (self.document.get("rule") or "").strip()


def compile_rules(node: Node, of: Declared) -> list[Rule]:
    """Those of one schema, without the schemas below it."""
    plain, optional = _declarations(of)
    return [_compiled(rule, node, optional if rule.get("optionalOldSelf") else plain) for rule in node.rules]


def _declarations(of: Declared) -> tuple[Declarations, Declarations]:
    fields = of.field_types()
    old = {"self": of.type, "oldSelf": of.type}
    return Declarations(old, fields.get), Declarations({**old, "oldSelf": optional_of(of.type)}, fields.get)


def _compiled(document: Document, node: Node, declarations: Declarations) -> Rule:
    text = document.get("rule") or ""
    if not text.strip():
        return Rule(document, None, "", None, "", "")
    program, error = _program(
        text, declarations, "bool", "compilation failed: ", "cel expression must evaluate to a bool"
    )
    message, message_error = None, ""
    if document.get("messageExpression") and program is not None:
        why = "messageExpression must evaluate to a string"
        message, message_error = _program(
            document["messageExpression"], declarations, "string", "messageExpression compilation failed: ", why
        )
    path = field_path(document.get("fieldPath") or "", node)
    return Rule(document, program, error, message, message_error, path or "")


def _program(text: str, declarations: Declarations, kind: str, prefix: str, why: str) -> tuple[Program | None, str]:
    try:
        program = compile_expression(text, declarations)
    except CompileError as error:
        return None, f"{prefix}{error}"
    return (program, "") if program.type.kind == kind else (None, why)


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")
_ESCAPE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def field_path(written: str, node: Node) -> str | None:
    """``.spec['x']`` as the path of a field below a schema; None when there is no such field."""
    path, end, at = "", 0, node
    for step in _STEP.finditer(written):
        name = step[1] if step[1] is not None else re.sub(r"\\(.)", lambda e: _ESCAPE.get(e[1], e[1]), step[2])
        below = at.properties.get(name) if at.properties else at.additional_node
        if step.start() != end or below is None:
            return None
        path += (f".{name}" if path else name) if at.properties else f"[{name}]"
        end, at = step.end(), below
    return path if end == len(written) else None


class _Correlation(NamedTuple):
    """Where a value was before, and its nearest ancestor that was anywhere: what did not change is let pass."""

    current: Correlated | None = None
    parent: Correlated | None = None

    def below(self, step: Callable[[Correlated], Correlated | None]) -> _Correlation:
        return self if self.current is None else _Correlation(step(self.current), self.current)

    def member(self, name: str) -> _Correlation:
        if self.current is not None and self.parent is None and name in ("apiVersion", "kind"):
            return _Correlation()
        return self.below(lambda of: of.member(name))

    def unchanged(self) -> bool:
        of = self.current if self.current is not None else self.parent
        return of is not None and of.unchanged()


class _Spent(Exception):
    """The budget of the object is used up, or a rule cost too much: nothing further is evaluated."""


@dataclass(slots=True)
class _Run:
    """The rules of one object."""

    causes: list[Cause] = field(default_factory=list)
    budget: int = PER_OBJECT

    def stop(self, cause: Cause) -> None:
        self.causes.append(cause)
        raise _Spent

    def spend(self, result: Result, path: str, kind: str) -> None:
        if result.cost > self.budget:
            self.stop(_invalid(path, kind, _OUT_OF_BUDGET))
        self.budget -= result.cost


@dataclass(frozen=True, slots=True, eq=False)
class RuleTree:
    """The rules of a schema and of those below it; schemas without rules are left out."""

    node: Node
    declared: Declared
    rules: tuple[Rule, ...]
    members: Mapping[str, RuleTree]
    additional: RuleTree | None
    items: RuleTree | None

    def causes(self, obj: Document, old: Document | None, *, root: Node) -> list[Cause]:
        """What the rules refuse. ``root`` is the schema of the whole object."""
        run = _Run()
        correlation = _Correlation() if old is None else _Correlation(Correlated(obj, old, root))
        with suppress(_Spent):
            self._check(run, obj, old, correlation, "")
        return run.causes

    def _check(self, run: _Run, value: Any, old: Any, correlation: _Correlation, path: str) -> None:
        if value is None:
            return
        self._own(run, value, old, correlation, path)
        if isinstance(value, list):
            self._in_list(run, value, old, correlation, path)
        elif isinstance(value, dict):
            self._in_object(run, value, old, correlation, path)

    def _in_object(self, run: _Run, value: Document, old: Any, correlation: _Correlation, path: str) -> None:
        before = old if isinstance(old, dict) else {}
        for name, part in value.items():
            below = self.members.get(name) or self.additional
            if below is not None:
                at = f"{path}[{name}]" if name not in self.members else f"{path}.{name}" if path else name
                below._check(run, part, before.get(name), correlation.member(name), at)

    def _in_list(self, run: _Run, value: list[Any], old: Any, correlation: _Correlation, path: str) -> None:
        if self.items is None:
            return
        for index, (item, before) in enumerate(zip(value, self._old_items(value, old), strict=True)):
            at = _Correlation.below(correlation, lambda of, index=index: of.item(index))  # type: ignore[misc]
            self.items._check(run, item, before, at, f"{path}[{index}]")

    def _old_items(self, value: list[Any], old: Any) -> Iterator[Any]:
        """Of a list of type ``map`` alone it is known which item was which."""
        keys = self.node.list_map_keys
        if self.node.list_type != "map" or not isinstance(old, list):
            yield from [None] * len(value)
            return
        known = {_keys(item, keys): item for item in old}
        for item in value:
            yield known.get(_keys(item, keys))

    def _own(self, run: _Run, value: Any, old: Any, correlation: _Correlation, path: str) -> None:
        if not self.rules:
            return
        kind = self.node.types[0] if len(self.node.types) == 1 else ""
        if run.budget <= 0:
            run.stop(_invalid(path, kind, _OUT_OF_BUDGET))
        convert = self.declared.convert or (lambda of: of)
        try:
            variables, optional = _variables(convert, value, old)
        except EvaluationError as error:
            run.causes += [_invalid(path, kind, f"{error} evaluating rule: {rule.shown}") for rule in self.rules]
            return
        for rule in self.rules:
            self._one(run, rule, optional if rule.optional_old else variables, value, correlation, path)

    def _one(
        self, run: _Run, rule: Rule, variables: Document, value: Any, correlation: _Correlation, path: str
    ) -> None:
        kind = self.node.types[0] if len(self.node.types) == 1 else ""
        if rule.error:
            run.causes.append(_invalid(path, kind, f"rule compile error: {rule.error}"))
        if rule.program is None or (rule.uses_old and "oldSelf" not in variables):
            return
        result = rule.program.evaluate(variables)
        run.spend(result, path, kind)
        if result.error is not None:
            self._failed(run, rule, result.error, path, kind)
        elif result.value is not True:
            cause = self._refusal(run, rule, variables, value, path)
            tolerated = not rule.uses_old and correlation.unchanged()
            run.causes.append(replace(cause, tolerated=tolerated))

    def _failed(self, run: _Run, rule: Rule, error: EvaluationError, path: str, kind: str) -> None:
        if isinstance(error, CostExceeded):
            why = f"no further validation rules will be run due to call cost exceeds limit for rule: {rule.shown}"
            run.stop(_invalid(path, kind, f"'{error}': {why}"))
        text = f"{error} evaluating rule: {rule.shown}"
        if str(error).startswith("no such overload"):
            why = "call arguments did not match a supported operator, function or macro signature"
            text = f"'{error}': {why} for rule: {rule.shown}"
        run.causes.append(_invalid(path, kind, text))

    def _refusal(self, run: _Run, rule: Rule, variables: Document, value: Any, path: str) -> Cause:
        at = path
        if rule.field_path:
            at = f"{path}.{rule.field_path}" if path else rule.field_path
        detail = self._message(run, rule, variables, at)
        omitted = self.node.types in (("object",), ("array",))
        return _for_reason(rule.document.get("reason"), at or NO_FIELD, "" if omitted else shown(value), detail)

    def _message(self, run: _Run, rule: Rule, variables: Document, path: str) -> str:
        default = (rule.document.get("message") or "").strip() or f"failed rule: {rule.shown}"
        if rule.message is None:
            return default
        kind = self.node.types[0] if len(self.node.types) == 1 else ""
        result = rule.message.evaluate(variables)
        if result.cost > run.budget:
            why = "messageExpression evaluation failed due to running out of cost budget, "
            run.stop(_invalid(path, kind, f"{why}no further validation rules will be run"))
        if isinstance(result.error, CostExceeded):
            text = shown(rule.document["messageExpression"])
            why = (
                f"no further validation rules will be run due to call cost exceeds limit for messageExpression: {text}"
            )
            run.stop(_invalid(path, kind, why))
        run.budget -= result.cost
        said = result.value.strip() if isinstance(result.value, str) else ""
        usable = said and "\n" not in said and len(said.encode()) <= _LONGEST_MESSAGE
        return said if usable else default


def _keys(item: Any, keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(repr(item.get(key)) for key in keys) if isinstance(item, dict) else ()


def _variables(convert: Callable[[Any], Any], value: Any, old: Any) -> tuple[Document, Document]:
    """For rules that see the old value where there is one, and for those that see an optional one."""
    variables: Document = {"self": convert(value)}
    if old is None:
        return variables, {**variables, "oldSelf": NONE}
    before = convert(old)
    return {**variables, "oldSelf": before}, {**variables, "oldSelf": Optional(True, before)}


def _invalid(path: str, kind: str, detail: str) -> Cause:
    return Cause("FieldValueInvalid", path or NO_FIELD, f'Invalid value: "{kind}": {detail}')


def _for_reason(reason: str | None, path: str, value: str, detail: str) -> Cause:
    if reason == "FieldValueForbidden":
        return Cause(reason, path, f"Forbidden: {detail}")
    if reason == "FieldValueRequired":
        return Cause(reason, path, f"Required value: {detail}")
    shown_value = f"{value}: " if value else ""
    if reason == "FieldValueDuplicate":
        return Cause(reason, path, f"Duplicate value: {value}".removesuffix(": "))
    return Cause("FieldValueInvalid", path, f"Invalid value: {shown_value}{detail}")


def rule_tree(node: Node, of: Declared | None, *, root: bool) -> RuleTree | None:
    """None where there are no rules; ``root``: of a whole object."""
    if of is None or not node.any("rules"):
        return None
    items = rule_tree(node.items, of.items, root=node.items.embedded) if node.items is not None else None
    values = node.additional_node
    additional = rule_tree(values, of.items, root=values.embedded) if values is not None else None
    members = {
        name: tree
        for name, part in node.properties.items()
        if (tree := rule_tree(part, _of_member(of, name, part), root=part.embedded)) is not None
    }
    rules = tuple(compile_rules(node, of))
    if not (rules or items or additional or members):
        return None
    return RuleTree(node, of, rules, members, additional, items)


def _of_member(of: Declared, name: str, part: Node) -> Declared | None:
    known = escape(name)
    if known is None:
        return declared(part, "selfType", root=part.embedded)
    return of.fields.get(known)


def rules_of(node: Node) -> RuleTree | None:
    """Of the schema of a whole custom resource."""
    return rule_tree(node, declared(node, "selfType", root=True), root=True)
