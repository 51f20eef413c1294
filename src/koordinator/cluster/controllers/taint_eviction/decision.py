"""How long a pod may stay on a node with taints that end pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koordinator.api.node import Node, Taint
from koordinator.api.pod import Toleration
from koordinator.model.tolerations import NO_EXECUTE, tolerates


def no_execute_taints(node: Node | None) -> list[Taint]:
    """The taints that end pods; none of a node that is not there."""
    return [] if node is None else [taint for taint in node.spec.taints if taint.effect == NO_EXECUTE]


def seconds_to_eviction(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """How long the pod tolerates all of these taints: 0 if it does not, None if for ever.

    As in Kubernetes, the first toleration of a taint counts, and of all taints the shortest time.
    """
    shortest: float | None = None
    for taint in taints:
        matching = next((each for each in tolerations if tolerates(each, taint)), None)
        if matching is None:
            return 0.0
        if matching.toleration_seconds is not None:
            seconds = float(max(0, matching.toleration_seconds))
            shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest
