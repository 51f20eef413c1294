"""A plugin that gives whole CPUs by number, as NodeNUMAResource and DeviceShare give theirs: the lowest free ones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    ClusterWriter,
    CycleState,
    PodChanges,
    PreBindPlugin,
)
from koordinator.scheduler.engine.columns import Ints, NamedAspect, NodeReference, Rows
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import FilterPlugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView

ANNOTATION = "example.com/cpus"
_CPUS = 4
_CHANGED = NamedAspect("example.com/CpuSets")


def wanted(pod: PodInfo) -> int:
    return int(pod.pod.metadata.labels.get("cpus", "0"))


class CpuSets(FilterPlugin, AllocatorPlugin, PreBindPlugin):
    """Each node has CPUs 0 to 3. Counts how often each is taken, so that a mistake shows."""

    name = "CpuSets"
    reads = (_CHANGED,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.taken: dict[int, list[int]] = {}
        self.fails = False
        self._changed = view.columns.aspect(_CHANGED)

    def class_key(self, pod: PodInfo) -> Hashable:
        return wanted(pod)

    def free(self, row: int) -> list[int]:
        return [cpu for cpu, count in enumerate(self.taken.get(row, [0] * _CPUS)) if not count]

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return np.array([len(self.free(row)) < wanted(pod) for row in rows.tolist()], dtype=np.int64)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) didn't have free CPUs"),)

    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> tuple[int, ...] | Reason | None:
        if pod.pod.metadata.labels.get("picky") == node.name:
            return Reason("no CPUs of one core")
        chosen = tuple(self.free(node.index)[: wanted(pod)])
        return (chosen if len(chosen) == wanted(pod) else Reason("CPUs were taken meanwhile")) if wanted(pod) else None

    def restore(self, pod: PodInfo, node: NodeReference) -> tuple[int, ...] | None:
        text = pod.pod.metadata.annotations.get(ANNOTATION)
        return tuple(map(int, text.split(","))) if text else None

    def on_allocated(self, row: int, pod: PodInfo, allocation: tuple[int, ...]) -> None:
        if self.fails:
            raise RuntimeError("the books are closed")
        self._count(row, allocation, 1)

    def on_released(self, row: int, pod: PodInfo, allocation: tuple[int, ...]) -> None:
        self._count(row, allocation, -1)

    def _count(self, row: int, allocation: tuple[int, ...], sign: int) -> None:
        counts = self.taken.setdefault(row, [0] * _CPUS)
        for cpu in allocation:
            counts[cpu] += sign
        if not any(counts):
            del self.taken[row]
        self.view.columns.touch(row, self._changed)

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        cpus = self.view.allocations.of(self.name, pod.uid)
        if cpus is not None:
            changes.annotations[ANNOTATION] = ",".join(map(str, cpus))

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE, EventKind.NODE_ADD})
