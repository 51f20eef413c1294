"""NodeName: a pod with spec.nodeName fits on that node only."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import FilterPlugin, PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.pod_info import PodInfo


class NodeName(PreFilterPlugin, FilterPlugin):
    name = "NodeName"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def class_key(self, pod: PodInfo) -> Hashable:
        return pod.pod.spec.node_name

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        return PreFilterResult(skip=not pod.pod.spec.node_name)

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        wanted = self.view.columns.row_of.get(pod.pod.spec.node_name, -1)
        codes: Ints = (rows != wanted).astype(np.int64)
        return codes

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) didn't match the requested node name", unresolvable=True),)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        return event.new is None or event.new.metadata.name == pod.pod.spec.node_name
