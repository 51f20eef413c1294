"""Columns as they might be: a little more or less taken of some nodes, for as long as a question is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.resource_index import PODS


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What is to be thought taken of a node (negative: free) beyond what is."""

    amounts: Mapping[int, int] = field(default_factory=dict)
    """Column -> amount; the column of pods counts pods."""
    non_zero: tuple[int, int] = (0, 0)


def difference(removed: Iterable[PodInfo], added: Iterable[PodInfo]) -> Adjustment:
    """What changes on a node when pods leave it and others come."""
    amounts: dict[int, int] = {}
    cpu = memory = 0
    for pods, sign in ((removed, -1), (added, 1)):
        for pod in pods:
            for column, amount in pod.request.amounts.items():
                amounts[column] = amounts.get(column, 0) + sign * amount
            amounts[PODS] = amounts.get(PODS, 0) + sign
            cpu += sign * pod.request.non_zero[0]
            memory += sign * pod.request.non_zero[1]
    return Adjustment(amounts, (cpu, memory))


@contextmanager
def adjusted(columns: NodeColumns, adjustments: Mapping[int, Adjustment]) -> Iterator[None]:
    """``requested`` is as ``adjustments`` (row -> adjustment) say, until the end of the block. Nobody is told: what is
    computed meanwhile belongs to whoever asked."""
    _shift(columns, adjustments, 1)
    try:
        yield
    finally:
        _shift(columns, adjustments, -1)


def shift(columns: NodeColumns, row: int, pod: PodInfo, sign: int) -> None:
    """Inside such a block: think the pod there, too (1), or take that back (-1)."""
    columns.shift(row, pod.request.counted, pod.request.non_zero, sign)


def _shift(columns: NodeColumns, adjustments: Mapping[int, Adjustment], sign: int) -> None:
    for row, adjustment in adjustments.items():
        columns.shift(row, adjustment.amounts, adjustment.non_zero, sign)
