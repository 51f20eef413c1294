"""TaintToleration: keeps pods off nodes whose taints they do not tolerate, and prefers nodes with fewer soft ones.

The nodes of a cluster have few different sets of taints, so the result is computed once for each set and looked up by
row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np

from koordinator.api.node import Node, Taint
from koordinator.api.pod import Toleration
from koordinator.model.tolerations import PREFER_NO_SCHEDULE, taint_text, tolerated, untolerated
from koordinator.scheduler.engine.columns import Aspect, Ints, Mask
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import (
    EventHandler,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    default_normalize,
)
from koordinator.scheduler.engine.plugin_forms import (
    ElementwiseFilterPlugin,
    ElementwiseScorePlugin,
    SomeRows,
    look_up,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.node_labels import widened

_TaintSet = tuple[tuple[str, str, str], ...]


@dataclass(slots=True)
class _Lookup:
    """One number for each set of taints; grows as new sets occur."""

    of_set: Callable[[Sequence[Taint]], int]
    values: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class TaintToleration(PreFilterPlugin, ElementwiseFilterPlugin, ElementwiseScorePlugin, EventHandler, Explainer):
    name = "TaintToleration"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)
    scales_zeros_alike = True

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._sets: list[list[Taint]] = [[]]
        self._number_of: dict[_TaintSet, int] = {(): 0}
        self._set_of_row: Ints = np.zeros(0, dtype=np.int64)

    def on_node(self, row: int, node: Node) -> None:
        if row >= self._set_of_row.shape[0]:
            self._set_of_row = widened(self._set_of_row, row + 1)
        self._set_of_row[row] = self._number(node.spec.taints)

    def on_node_removed(self, row: int, name: str) -> None:
        self._set_of_row[row] = 0

    def class_key(self, pod: PodInfo) -> Hashable:
        tolerations = pod.pod.spec.tolerations
        return msgspec.json.encode(tolerations) if tolerations else None

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        tolerations = pod.pod.spec.tolerations
        return PreFilterResult(state=_Lookup(lambda taints: int(any(untolerated(tolerations, taints)))))

    def filter(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        return self._look_up(state, rows)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) had untolerated taint(s)", unresolvable=True),)

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        taints = self._sets[int(self._set_of_row[row])]
        found = untolerated(pod.pod.spec.tolerations, taints)
        return [Lack(f"taint {taint_text(taint)} is not tolerated") for taint in found]

    def pre_score(self, pod: PodInfo) -> Any:
        # Only tolerations of all effects or of PreferNoSchedule count against soft taints.
        soft = [each for each in pod.pod.spec.tolerations if each.effect in ("", PREFER_NO_SCHEDULE)]
        return _Lookup(lambda taints: _untolerated_soft(soft, taints))

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        return self._look_up(state, rows)

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints | None:
        return default_normalize(raw, feasible, reverse=True)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD, EventKind.NODE_TAINT})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        return event.new is None or not any(untolerated(pod.pod.spec.tolerations, event.new.spec.taints))

    def _number(self, taints: Sequence[Taint]) -> int:
        key: _TaintSet = tuple((taint.key, taint.value, taint.effect) for taint in taints)
        number = self._number_of.get(key)
        if number is None:
            number = self._number_of[key] = len(self._sets)
            self._sets.append(list(taints))
        return number

    def _look_up(self, lookup: _Lookup, rows: SomeRows) -> Any:
        known = lookup.values.shape[0]
        if known < len(self._sets):
            more = [lookup.of_set(taints) for taints in self._sets[known:]]
            lookup.values = np.concatenate([lookup.values, np.array(more, dtype=np.int64)])
        return look_up(lookup.values, self._set_of_row, rows)


def _untolerated_soft(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> int:
    return sum(1 for taint in taints if taint.effect == PREFER_NO_SCHEDULE and not tolerated(tolerations, taint))
