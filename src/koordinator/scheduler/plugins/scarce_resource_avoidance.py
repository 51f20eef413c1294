"""ScarceResourceAvoidance: keeps pods off nodes with scarce resources (such as GPUs) that they do not request."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Final

from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.framework import MAX_NODE_SCORE
from koordinator.scheduler.engine.plugin_forms import ElementwiseScorePlugin, SomeRows, chosen, of_rows, zeros
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import EPHEMERAL_STORAGE, PODS
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_resources.allocation import is_scalar

_KEY_MEMO: Final = "ScarceResourceAvoidance/key"


class ScarceResourceAvoidance(ElementwiseScorePlugin):
    """The score: of the node's resources that the pod does not request, the share that are not scarce, in percent."""

    name = "ScarceResourceAvoidance"
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._scarce_names = frozenset(args.resources)
        self._columns: list[tuple[int, str, bool]] = []
        """The columns of all resources that count, each with its name and whether it is scarce."""
        self._known = 0
        """The number of columns that have been looked at."""

    def class_key(self, pod: PodInfo) -> Hashable:
        key = pod.memo.get(_KEY_MEMO)
        if key is None:
            key = pod.memo[_KEY_MEMO] = frozenset(pod.request.amounts)
        return key

    def pre_score(self, pod: PodInfo) -> Any:
        """The resources that the pod requests."""
        return self.class_key(pod)

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        self._learn()
        allocatable = self.view.columns.allocatable
        unused, scarce = zeros(rows), zeros(rows)
        for column, name, is_scarce in self._columns:
            if name not in state:
                present = of_rows(allocatable[:, column], rows) > 0
                unused += present
                if is_scarce:
                    scarce += present
        share = (unused - scarce) * MAX_NODE_SCORE // chosen(unused > 0, unused, 1)
        return chosen(unused > 0, share, MAX_NODE_SCORE)

    def _learn(self) -> None:
        """Add columns of resources that are new to the cluster: a node may bring some at any time."""
        resources = self.view.columns.resources
        if self._known == resources.width:
            return
        self._known = resources.width
        self._columns = [
            (column, name, name in self._scarce_names)
            for name, column in resources.column_of.items()
            if column != PODS and (column <= EPHEMERAL_STORAGE or is_scalar(name))
        ]
