"""A profile's selectors, compiled, or what is wrong with them in the words of a manifest.

Unlike elsewhere in Kubernetes an absent selector of a profile matches everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordinator.api.field_error import FieldError
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.names import label_key, label_value
from koordinator.model.label_selector import EVERYTHING, NOTHING, CompiledSelector, compile_selector

_WITH_VALUES: Final = ("In", "NotIn")
_OPERATORS: Final = (*_WITH_VALUES, "Exists", "DoesNotExist")
_KEY: Final = "must be a label key such as app or example.com/app"
_VALUE: Final = "must be a label value: empty, or at most 63 letters, digits, '-', '_' and '.'"


def compile_profile_selector(selector: LabelSelector | None, path: str) -> tuple[CompiledSelector, list[FieldError]]:
    """The compiled selector; NOTHING, and why, where it cannot be used."""
    if selector is None:
        return EVERYTHING, []
    problems = list(_problems(selector, path))
    return (NOTHING, problems) if problems else (compile_selector(selector), [])


def _problems(selector: LabelSelector, path: str) -> Iterator[FieldError]:
    for key, value in selector.match_labels.items():
        if label_key(key):
            yield FieldError.invalid(f"{path}.matchLabels", key, _KEY)
        if label_value(value):
            yield FieldError.invalid(f"{path}.matchLabels[{key}]", value, _VALUE)
    for index, requirement in enumerate(selector.match_expressions):
        yield from _expression_problems(requirement, f"{path}.matchExpressions[{index}]")


def _expression_problems(requirement: LabelSelectorRequirement, path: str) -> Iterator[FieldError]:
    if label_key(requirement.key):
        yield FieldError.invalid(f"{path}.key", requirement.key, _KEY)
    if requirement.operator not in _OPERATORS:
        yield FieldError.not_supported(f"{path}.operator", requirement.operator, _OPERATORS)
    elif requirement.operator in _WITH_VALUES and not requirement.values:
        yield FieldError.required(f"{path}.values", f"the operator {requirement.operator} needs at least one value")
    elif requirement.operator not in _WITH_VALUES and requirement.values:
        allowed = f"the operator {requirement.operator} takes no values"
        yield FieldError.invalid(f"{path}.values", requirement.values, allowed)
    for value in requirement.values:
        if label_value(value):
            yield FieldError.invalid(f"{path}.values", value, _VALUE)
