"""One strategy for the cluster and others for groups of nodes: selects which of them applies to a node.

The first in the list whose selector matches wins. Searching the list for each of thousands of nodes would cost more
than all else, so selectors that require an exact label are indexed by it. A selector with an invalid label
(apimachinery, IsQualifiedName and IsValidLabelValue) is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Generic, TypeVar

from koordinator.api.meta import LabelSelector
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector

_NAME_LENGTH: Final = 63
_PREFIX_LENGTH: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE: Final = (
    f"at most {_NAME_LENGTH} letters, digits, '-', '_' and '.', of which the first and last are a letter or digit"
)
T = TypeVar("T")


def check_label(key: str, values: Iterable[str]) -> str | None:
    """The error in a label's key or any of its values; None when they are valid."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _PREFIX_LENGTH and _SUBDOMAIN.fullmatch(prefix)):
        return f"{key!r} is not a label: before the '/' must be a DNS subdomain such as example.com"
    if not _is_name(name):
        return f"{key!r} is not a label: its name must be {_NAME_RULE}"
    for value in values:
        if value and not _is_name(value):
            return f"{value!r} is not a value of the label {key!r}: it must be empty or {_NAME_RULE}"
    return None


def _is_name(text: str) -> bool:
    return len(text) <= _NAME_LENGTH and _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class NodeStrategy(Generic[T]):
    """``selector`` is None when it could not be decoded: then the strategy applies to no node."""

    name: str
    selector: CompiledSelector | None
    strategy: T


@dataclass(frozen=True)
class StrategySet(Generic[T]):
    """Strategies with all that they inherit; immutable."""

    cluster: T
    nodes: tuple[NodeStrategy[T], ...] = ()

    def for_labels(self, labels: Mapping[str, str]) -> T:
        """The strategy of a node with ``labels``: the first that selects it, else the cluster's."""
        first = next(self.matching(labels), None)
        return self.cluster if first is None else first.strategy

    def matching(self, labels: Mapping[str, str]) -> Iterator[NodeStrategy[T]]:
        """All strategies that select a node with ``labels``, in the order of their precedence."""
        indexed, others = self._index
        candidates = list(others)
        for key, by_value in indexed.items():
            candidates += by_value.get(labels.get(key, ""), ())
        for position in sorted(candidates):
            node = self.nodes[position]
            if node.selector is not None and node.selector.matches(labels):
                yield node

    @cached_property
    def _index(self) -> tuple[dict[str, dict[str, list[int]]], list[int]]:
        """Label -> value -> positions of the strategies that require it; positions of the strategies that require
        none."""
        indexed: dict[str, dict[str, list[int]]] = {}
        others: list[int] = []
        for position, node in enumerate(self.nodes):
            required = next(iter(node.selector.required.items()), None) if node.selector is not None else None
            if required is not None:
                indexed.setdefault(required[0], {}).setdefault(required[1], []).append(position)
            elif node.selector is not None:
                others.append(position)
        return indexed, others


def compile_node_selector(selector: LabelSelector | None) -> CompiledSelector:
    """As ``compile_selector``, with labels that a node can have. Raises SelectorError."""
    if selector is not None:
        pairs = [(key, [value]) for key, value in selector.match_labels.items()]
        pairs += [(expression.key, expression.values) for expression in selector.match_expressions]
        for key, values in pairs:
            error = check_label(key, values)
            if error is not None:
                raise SelectorError(error)
    return compile_selector(selector)
