"""Expressions in webhook configurations and admission policies, when they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from koordinator.api.document import Document
from koordinator.api.names import label_key
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, invalid, required

if TYPE_CHECKING:
    # What compiles expressions is loaded where there are some.
    from koordinator.model.cel.program import Declarations

_MOST_CONDITIONS: Final = 64


def check_match_conditions(conditions: Sequence[Document], field: str, *, params: bool = False) -> list[Cause]:
    """``params``: whether they may name the parameters of a policy."""
    if not conditions:
        return []
    # Most configurations have none, and need not load what compiles them.
    from koordinator.cluster.admission_expressions.declarations import request_declarations

    causes: list[Cause] = []
    if len(conditions) > _MOST_CONDITIONS:
        message = f"Too many: {len(conditions)}: must have at most {_MOST_CONDITIONS} items"
        causes.append(Cause("FieldValueTooMany", field, message))
    declarations = request_declarations(params=params)
    for index, condition in enumerate(conditions[:_MOST_CONDITIONS]):
        at, text = f"{field}[{index}]", (condition.get("expression") or "").strip()
        causes += check_expression(text, f"{at}.expression", declarations, "bool") if text else [
            required(f"{at}.expression")
        ]  # fmt: skip
        causes += _check_name(condition.get("name") or "", [c.get("name") for c in conditions[:index]], f"{at}.name")
    return causes


def _check_name(name: str, before: Sequence[str | None], field: str) -> list[Cause]:
    if not name:
        return [required(field)]
    causes = [invalid(field, name, error) for error in label_key(name)]
    return [*causes, duplicate(field, name)] if name in before else causes


def check_expression(text: str, field: str, declarations: Declarations, *kinds: str) -> list[Cause]:
    from koordinator.cluster.admission_expressions.compilation import compiled

    expression = compiled(text, declarations, *kinds)
    return [invalid(field, text, expression.error)] if expression.error else []
