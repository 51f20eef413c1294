"""One strategy for the cluster and others for groups of nodes: which of them is a node's.

The first in the list whose selector matches wins. Looking through the list for each of thousands of nodes would cost
more than all else, so selectors that ask for an exact label are found by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from koordinator.api.meta import LabelSelector
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.model.slo_configuration.label_syntax import check_label

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeStrategy(Generic[T]):
    """``selector`` is None when it could not be read: then the strategy is no node's."""

    name: str
    selector: CompiledSelector | None
    strategy: T


@dataclass(frozen=True)
class StrategySet(Generic[T]):
    """Strategies with all that they inherit in them; immutable."""

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
        """Label -> value -> positions of the strategies that ask for it; positions of the strategies that ask none."""
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
    """As ``compile_selector``, and labels must be such as a node can have. Raises SelectorError."""
    if selector is not None:
        pairs = [(key, [value]) for key, value in selector.match_labels.items()]
        pairs += [(expression.key, expression.values) for expression in selector.match_expressions]
        for key, values in pairs:
            error = check_label(key, values)
            if error is not None:
                raise SelectorError(error)
    return compile_selector(selector)
