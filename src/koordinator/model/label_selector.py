"""Label selectors compiled once and matched many times (apimachinery, LabelSelectorAsSelector).

A selector is matched against thousands of pods, so it also returns the labels that a match must have with one exact
value: an index of pods by label finds the few candidates with it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.base.errors import KoordinatorError

_WITH_VALUES: Final = ("In", "NotIn")
_OPERATORS: Final = (*_WITH_VALUES, "Exists", "DoesNotExist")
_WRITTEN: Final = re.compile(
    r"\s*(!)?\s*([A-Za-z0-9][-A-Za-z0-9_./]*)\s*(?:(==|=|!=)\s*([-A-Za-z0-9_.]*)|\s(in|notin)\s*\(([^()]*)\))?\s*(?:,|$)"
)
_WRITTEN_OPERATORS: Final = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn"}
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class SelectorError(KoordinatorError, ValueError):
    """An invalid selector: an unknown operator, or values where none are allowed, or none where some are required."""


@dataclass(frozen=True, slots=True)
class _Requirement:
    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


@dataclass(frozen=True)
class CompiledSelector:
    """Equal and hashable by its requirements, as far as these are written in the same way."""

    equalities: frozenset[tuple[str, str]] = frozenset()
    """Labels that must be there with these values."""
    others: frozenset[_Requirement] = frozenset()
    nothing: bool = False
    """Matches nothing at all: what an absent selector means."""

    @property
    def empty(self) -> bool:
        """Whether it has no requirements, so that it matches everything."""
        return not (self.equalities or self.others or self.nothing)

    @cached_property
    def key(self) -> Hashable:
        """The requirements in plain values: equal for equal selectors."""
        others = sorted((each.key, each.operator, tuple(sorted(each.values))) for each in self.others)
        return tuple(sorted(self.equalities)), tuple(others), self.nothing

    @cached_property
    def required(self) -> Mapping[str, str]:
        """Labels that every match has with these values; only ``matches`` checks the other requirements."""
        return MappingProxyType(dict(sorted(self.equalities)))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector matches the labels."""
        if self.nothing:
            return False
        for key, value in self.equalities:
            if labels.get(key) != value:
                return False
        return all(requirement.matches(labels) for requirement in self.others)

    def with_labels(self, labels: Mapping[str, str]) -> CompiledSelector:
        """The same selector that also requires ``labels``; a selector that matches nothing stays so."""
        if self.nothing or not labels:
            return self
        return CompiledSelector(self.equalities | frozenset(labels.items()), self.others)

    def also(self, other: CompiledSelector) -> CompiledSelector:
        """The conjunction of both selectors."""
        return CompiledSelector(
            self.equalities | other.equalities, self.others | other.others, self.nothing or other.nothing
        )


NOTHING: Final = CompiledSelector(nothing=True)
"""The selector that an absent one stands for."""
EVERYTHING: Final = CompiledSelector()
"""The selector that an empty one stands for."""


def compile_selector(selector: LabelSelector | None) -> CompiledSelector:
    """Compile a selector: an empty one matches everything, an absent one nothing. Raises SelectorError."""
    if selector is None:
        return NOTHING
    equalities = set(selector.match_labels.items())
    others: set[_Requirement] = set()
    for expression in selector.match_expressions:
        _check(expression)
        if expression.operator == "In" and len(set(expression.values)) == 1:
            equalities.add((expression.key, expression.values[0]))
        else:
            others.add(_Requirement(expression.key, expression.operator, frozenset(expression.values)))
    return CompiledSelector(frozenset(equalities), frozenset(others))


def required_labels(selector: LabelSelector | None) -> Mapping[str, str]:
    """The labels that everything that ``selector`` matches has with these values. Raises SelectorError."""
    return compile_selector(selector).required if selector is not None else _NO_LABELS


def parse_selector(text: str) -> CompiledSelector:
    """Parse a selector in command line syntax: ``a=b,c!=d,e in (f,g),h notin (i),j,!k``; the empty text matches
    everything. Raises SelectorError."""
    expressions = []
    position = 0
    while position < len(text.rstrip()):
        matched = _WRITTEN.match(text, position)
        if matched is None:
            raise SelectorError(f"{text[position:]!r} is not a label selector such as a=b, a!=b, a in (b,c), a or !a")
        position = matched.end()
        absent, key, equality, value, membership, values = matched.groups(default="")
        if absent and (equality or membership):
            raise SelectorError(f"!{key} takes no value")
        operator = _WRITTEN_OPERATORS.get(equality or membership, "DoesNotExist" if absent else "Exists")
        listed = [part.strip() for part in values.split(",")] if membership else [value] if equality else []
        expressions.append(LabelSelectorRequirement(key=key, operator=operator, values=listed))
    return compile_selector(LabelSelector(match_expressions=expressions))


def _check(requirement: LabelSelectorRequirement) -> None:
    key, operator = requirement.key, requirement.operator
    if operator not in _OPERATORS:
        raise SelectorError(f"{operator!r} of the key {key!r} is not a valid label selector operator")
    if operator in _WITH_VALUES and not requirement.values:
        raise SelectorError(f"the operator {operator} of the key {key!r} needs values")
    if operator not in _WITH_VALUES and requirement.values:
        raise SelectorError(f"the operator {operator} of the key {key!r} takes no values")
