"""What was decided about each node last, and why: for people, and for one who sums it all up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from koordinator.model.overcommit.abnormality import NodeHealth
from koordinator.model.overcommit.explained_sum import ExplainedAmount


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """One node at the time of the last look at it."""

    at: datetime
    amounts: tuple[ExplainedAmount, ...]
    health: NodeHealth | None = None
    """What makes the node abnormal, and since when; None while it is normal."""
    problems: tuple[str, ...] = ()
    """What of the node's configuration could not be used."""
    written: str = ""
    """Why the node's status was due to be written at that look; empty when it was not."""
    zones: tuple[ExplainedAmount, ...] = ()
    """Batch amounts of each zone; worked out when somebody asks, since they are many."""


class Explanations:
    """The last of every node that there is."""

    def __init__(self) -> None:
        self._by_node: dict[str, NodeExplanation] = {}

    def put(self, node: str, explanation: NodeExplanation) -> None:
        self._by_node[node] = explanation

    def forget(self, node: str) -> None:
        self._by_node.pop(node, None)

    def clear(self) -> None:
        self._by_node.clear()

    def of(self, node: str) -> NodeExplanation | None:
        return self._by_node.get(node)

    def __iter__(self) -> Iterator[tuple[str, NodeExplanation]]:
        return iter(list(self._by_node.items()))
