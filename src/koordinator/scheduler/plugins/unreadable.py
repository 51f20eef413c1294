"""Running pods that cannot be read, in whole or in what they hold: the authors are told, and nothing more is placed
where such a pod may hold it.

A node with a running pod that cannot be decoded takes no further pod, since nobody knows how much of it is free
(UnreadablePods). No profile lists that plugin. It comes before the filters of all profiles while there are such pods,
and costs nothing while there are none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.scheduler.engine.allocations import (
    Closure,
    Closures,
    closed_by,
)
from koordinator.scheduler.engine.columns import AnyAspect, Aspect, Ints, NamedAspect, Rows
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import FilterPlugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack

NAME: Final = "UnreadablePods"
_CHANGED: Final = NamedAspect(NAME, is_static=True)
_CLOSED: Final = Reason("node(s) had a running pod that cannot be decoded", unresolvable=True)


class UnreadablePods(FilterPlugin, Explainer):
    name = NAME
    reads: ClassVar[tuple[AnyAspect, ...]] = (Aspect.NODE, _CHANGED)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._closed = Closures()
        """By name of the node, known or not, and key of the pod."""
        self._changed = view.columns.aspect(_CHANGED)

    def close(self, node_name: str, closure: Closure) -> None:
        """Close the node because of the pod, which closes no other one any more."""
        self.open(closure.pod)
        self._closed.put(node_name, closure.pod, closure)
        self._touch(node_name)

    def open(self, key: str) -> bool:
        """The pod closes no node any more; returns whether it did."""
        found = self._closed.open(key)
        for name in found:
            self._touch(name)
        return bool(found)

    def _touch(self, node_name: str) -> None:
        columns = self.view.columns
        if not self._closed or self not in self.view.engine_filters:
            self.view.engine_filters = (self,) if self._closed else ()
        row = columns.row_of.get(node_name)
        if row is not None:
            columns.touch(row, self._changed)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        names = self.view.columns.names
        return np.array([names[row] in self._closed for row in rows.tolist()], dtype=np.int64)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (_CLOSED,)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_READABLE, EventKind.NODE_ADD})

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        closures = self._closed.of(self.view.columns.names[row]).values()
        return [Lack(f"what pod {each.pod} takes cannot be known: {each.fault}") for each in closures]

    def node_facts(self, row: int) -> Mapping[str, Any] | None:
        return closed_by(self._closed.of(self.view.columns.names[row])) or None
