"""NodeResourcesFitPlus: packs or spreads pods by each resource, as the arguments configure it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.engine.plugin_forms import ElementwiseScorePlugin, SomeRows, chosen, of_rows, zeros
from koordinator.scheduler.engine.pod_info import PodInfo, resources_key
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_resources.allocation import with_defaults


@dataclass(frozen=True, slots=True)
class _Share:
    """A resource that counts for a pod."""

    column: int
    added: int
    """What the pod requests of it."""
    weight: int
    packs: bool
    """MostAllocated, else LeastAllocated."""


class NodeResourcesFitPlus(ElementwiseScorePlugin):
    """Scores by the resources that the pod requests and the arguments name; pods that request none of these score the
    same everywhere. Unlike in NodeResourcesFit a resource that a node lacks counts, with 0."""

    name = "NodeResourcesFitPlus"
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._strategies = [
            (name, strategy.weight, strategy.type == "MostAllocated") for name, strategy in args.resources.items()
        ]

    def class_key(self, pod: PodInfo) -> Hashable:
        return resources_key(pod)

    def pre_score(self, pod: PodInfo) -> Any:
        amounts, added, column_of = pod.request.amounts, with_defaults(pod), self.view.columns.resources.column_of
        shares = [
            _Share(column_of[name], added[name], weight, packs)
            for name, weight, packs in self._strategies
            if amounts.get(name, 0) > 0
        ]
        return shares if any(share.weight for share in shares) else []

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        total = zeros(rows)
        if not state:
            return total + MAX_NODE_SCORE
        columns = self.view.columns
        for share in state:
            used = of_rows(columns.taken(share.column, with_defaults=True), rows) + share.added
            whole = of_rows(columns.allocatable[:, share.column], rows)
            part = used if share.packs else whole - used
            within = chosen(part < whole, chosen(part > 0, part, 0), whole)
            total += within * MAX_NODE_SCORE // chosen(whole > 0, whole, 1) * share.weight
        return total // sum(share.weight for share in state)
