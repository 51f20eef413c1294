"""NodeUnschedulable: cordoned nodes accept only pods that tolerate the taint ``node.kubernetes.io/unschedulable``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api.node import Taint
from koordinator.model.tolerations import NO_SCHEDULE, tolerated
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import FilterPlugin, PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.explain.explainer import Explainer, Lack

_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class NodeUnschedulable(PreFilterPlugin, FilterPlugin, Explainer):
    name = "NodeUnschedulable"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def class_key(self, pod: PodInfo) -> Hashable:
        return tolerated(pod.pod.spec.tolerations, _TAINT)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        return PreFilterResult(skip=tolerated(pod.pod.spec.tolerations, _TAINT))

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        codes: Ints = self.view.columns.unschedulable[rows].astype(np.int64)
        return codes

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) were unschedulable", unresolvable=True),)

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        return (Lack("the node is cordoned"),)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD, EventKind.NODE_TAINT})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        return event.new is None or not event.new.spec.unschedulable
