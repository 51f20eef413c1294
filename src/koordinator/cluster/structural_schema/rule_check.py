"""What is wrong with the rules of a definition: their texts, what they may cost, and where they see an old value.

The order, the limits and the words are those of the real server (k8s.io/apiextensions-apiserver, ``validation.go`` and
``cel_validation.go``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, not_supported, required
from koordinator.cluster.structural_schema.failure import go_json
from koordinator.cluster.structural_schema.node import Node, read

_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_BREAKS: Final = re.compile(r"[\n\r]")
_RULE_COST: Final = 10_000_000
"""Of one expression, estimated, times how often it is evaluated."""
_DEFINITION_COST: Final = 100_000_000
_MOST_EXPENSIVE: Final = 4
_MOST: Final = (1 << 64) - 1
_REQUEST: Final = 3 * 1024 * 1024


def shape_causes(schema: Document, path: str) -> list[Cause]:
    """Of the rules of one schema, whatever their expressions say."""
    causes: list[Cause] = []
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        causes += _shape(rule, schema, f"{path}.x-kubernetes-validations[{index}]")
    return causes


def _shape(rule: Document, schema: Document, path: str) -> list[Cause]:
    text, message = (rule.get("rule") or "").strip(), (rule.get("message") or "").strip()
    causes: list[Cause] = []
    if not text:
        causes.append(required(f"{path}.rule", "rule is not specified"))
    elif rule.get("message") and not message:
        causes.append(invalid(f"{path}.message", rule["message"], "must be non-empty if specified"))
    elif _BREAKS.search(message):
        causes.append(invalid(f"{path}.message", rule["message"], "must not contain line breaks"))
    elif _BREAKS.search(text) and not message:
        causes.append(required(f"{path}.message", "message must be specified if rule contains line breaks"))
    if rule.get("messageExpression") and not rule["messageExpression"].strip():
        causes.append(required(f"{path}.messageExpression", "messageExpression must be non-empty if specified"))
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        causes.append(not_supported(f"{path}.reason", reason, _REASONS))
    return causes + _field_path(rule.get("fieldPath") or "", schema, f"{path}.fieldPath")


def _field_path(written: str, schema: Document, path: str) -> list[Cause]:
    # Only what has rules needs what compiles them.
    from koordinator.cluster.structural_schema.rules import field_path

    causes: list[Cause] = []
    if written and not written.strip():
        causes.append(invalid(path, written, "must be non-empty if specified"))
    if _BREAKS.search(written):
        causes.append(invalid(path, written, "must not contain line breaks"))
    if written and field_path(written, read(schema)) is None:
        causes.append(invalid(path, written, "must be a valid path"))
    return causes


@dataclass(slots=True)
class _Total:
    """The costs of all rules of a definition."""

    cost: int = 0
    expensive: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, cost: int) -> None:
        self.cost = min(self.cost + cost, _MOST)
        if cost >= _DEFINITION_COST // 100:
            self.expensive.append((cost, path))
            self.expensive.sort(key=lambda found: -found[0])
            del self.expensive[_MOST_EXPENSIVE:]

    def causes(self, path: str) -> list[Cause]:
        if self.cost <= _DEFINITION_COST:
            return []
        why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        return [
            *(forbidden(at, why) for _, at in self.expensive),
            _too_expensive(path, what, self.cost, _DEFINITION_COST),
        ]


def _too_expensive(path: str, what: str, cost: int, limit: int) -> Cause:
    times = cost / limit
    factor = "more than 100x" if times > 100 else f"{times:f}x" if times < 1.5 else f"{times:.1f}x"
    advice = (
        "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings"
    )
    return forbidden(path, f"{what} exceeds budget by factor of {factor} ({advice} are declared)")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema is: how often its values may occur, and which schema above hides their old values."""

    path: str
    root: bool
    often: int | None
    """None: as often as they find room in a request."""
    hidden_by: str = ""

    def below(self, path: str, node: Node) -> _Place:
        most = _most_elements(node)
        often = None if self.often is None or most is None else min(self.often * most, _MOST)
        return _Place(f"{self.path}{path}", False, often, self.hidden_by)

    def items(self, node: Node) -> _Place:
        below = self.below(".items", node)
        return below if node.list_type == "map" else replace(below, hidden_by=self.path)


def _most_elements(node: Node) -> int | None:
    if node.types == ("object",) and node.additional is not None:
        return None if node.max_properties is None else max(node.max_properties, 0)
    if node.types == ("array",):
        return None if node.max_items is None else max(node.max_items, 0)
    return 1


def rule_causes(schema: Document, path: str, wrong: Sequence[Cause]) -> list[Cause]:
    """Of the expressions of all rules. ``wrong`` is what else is wrong with the schema: there none is looked at."""
    node = read(schema)
    if not node.any("rules"):
        return []
    check = _Check([cause.field for cause in wrong])
    check.node(node, _Place(path, root=True, often=1))
    return check.causes + check.total.causes(path)


class _Check:
    def __init__(self, wrong: Sequence[str]) -> None:
        self._wrong = wrong
        self.causes: list[Cause] = []
        self.total = _Total()

    def node(self, node: Node, place: _Place) -> None:
        values = node.additional_node
        if values is not None:
            self.node(values, place.below(".additionalProperties", node))
        for name, part in node.properties.items():
            self.node(part, place.below(f".properties[{name}]", node))
        if node.items is not None:
            self.node(node.items, place.items(node))
        if node.rules and not any(_is_at(field, place.path) for field in self._wrong):
            self._rules(node, place)

    def _rules(self, node: Node, place: _Place) -> None:
        from koordinator.cluster.structural_schema.rule_types import declared
        from koordinator.cluster.structural_schema.rules import compile_rules

        at = f"{place.path}.x-kubernetes-validations"
        of = declared(node, "selfType", root=place.root or node.embedded)
        if of is None:
            why = "internal error: failed to construct type information for x-kubernetes-validations rules: "
            message = f"Internal error: {why}unable to convert structural schema to CEL declarations"
            self.causes.append(Cause("InternalError", at, message))
            return
        often = place.often if place.often is not None else _REQUEST // (of.least_bytes + 1)
        for index, rule in enumerate(compile_rules(node, of)):
            self._rule(rule, of.size_of, often, f"{at}[{index}]", place.hidden_by)

    def _rule(self, rule: Any, size_of: Callable[..., int | None], often: int, path: str, hidden_by: str) -> None:
        from koordinator.model.cel.cost_estimate import estimated_cost

        cost = 0 if rule.program is None else estimated_cost(rule.program.checked, size_of).most
        self._priced(f"{path}.rule", "estimated rule cost", min(cost * often, _MOST))
        if rule.error:
            self.causes.append(_invalid_rule(f"{path}.rule", rule.document, rule.error))
        if rule.message_error:
            self.causes.append(_invalid_rule(f"{path}.messageExpression", rule.document, rule.message_error))
        elif rule.message is not None:
            cost = estimated_cost(rule.message.checked, size_of).most
            self._priced(f"{path}.messageExpression", "estimated messageExpression cost", cost)
        self._old(rule, path, hidden_by)

    def _priced(self, path: str, what: str, cost: int) -> None:
        if cost > _RULE_COST:
            self.causes.append(_too_expensive(path, what, cost, _RULE_COST))
        self.total.add(path, cost)

    def _old(self, rule: Any, path: str, hidden_by: str) -> None:
        optional = rule.document.get("optionalOldSelf")
        if rule.uses_old and hidden_by:
            why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {hidden_by}"
            self.causes.append(invalid(f"{path}.rule", rule.document["rule"], why))
        elif not rule.uses_old and optional is not None:
            why = "may not be set if oldSelf is not used in rule"
            self.causes.append(invalid(f"{path}.optionalOldSelf", optional, why))


def _is_at(wrong: str, path: str) -> bool:
    return wrong == path or wrong.startswith((f"{path}.", f"{path}["))


def _invalid_rule(path: str, rule: Document, detail: str) -> Cause:
    return Cause("FieldValueInvalid", path, f"Invalid value: {_internal(rule)}: {detail}")


def _internal(rule: Document) -> str:
    """The real server shows its internal form of the rule."""
    fields = {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    return go_json(fields, order=False)
