"""Hypothetical node columns: what some nodes would look like with pods added or removed, for the length of a block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from koordinator.api.resource_names import PODS
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import PodInfo


class Change(Protocol):
    """A hypothetical change of one node. ``apply`` and ``revert`` alternate; ``revert`` is also called after a failed
    ``apply``."""

    def apply(self) -> None: ...
    def revert(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What a simulation adds to the requested resources of a node (negative: frees)."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    """By name of the resource; ``pods`` counts pods."""
    non_zero: tuple[int, int] = (0, 0)
    removed: tuple[PodInfo, ...] = ()
    """Pods of the node that count as removed: with what they request, their ports and their allocations."""
    added: tuple[PodInfo, ...] = ()
    """Pods that count as being on the node."""
    changes: tuple[Change, ...] = ()
    """Further changes of the row, applied before pods are removed and added, and reverted after these are restored."""


def difference(removed: Iterable[PodInfo], added: Iterable[PodInfo]) -> Adjustment:
    """The adjustment of a node when the pods ``removed`` leave it and the pods ``added`` come."""
    amounts: dict[str, int] = {}
    cpu = memory = 0
    for pods, sign in ((removed, -1), (added, 1)):
        for pod in pods:
            for name, amount in pod.request.amounts.items():
                amounts[name] = amounts.get(name, 0) + sign * amount
            amounts[PODS] = amounts.get(PODS, 0) + sign
            cpu += sign * pod.request.non_zero[0]
            memory += sign * pod.request.non_zero[1]
    return Adjustment(amounts, (cpu, memory))


class adjusted:
    """Within the block, ``requested`` includes ``adjustments`` (row -> adjustment). Event handlers are not notified:
    what is computed in the block is valid only for its caller.

    A class, and not a generator: a plugin that uses it may be interrupted between the block and its end, and a
    generator would not be resumed then.
    """

    __slots__ = ("_adjustments", "_columns")

    def __init__(self, columns: NodeColumns, adjustments: Mapping[int, Adjustment]) -> None:
        self._columns = columns
        self._adjustments = adjustments

    def __enter__(self) -> None:
        _shift(self._columns, self._adjustments, 1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _shift(self._columns, self._adjustments, -1)


def shift(columns: NodeColumns, row: int, pod: PodInfo, sign: int) -> None:
    """Within an ``adjusted`` block: count the pod on the row (``sign`` 1), or undo that (-1)."""
    columns.shift(row, pod.request.counted, pod.request.non_zero, sign)


def _shift(columns: NodeColumns, adjustments: Mapping[int, Adjustment], sign: int) -> None:
    for row, adjustment in adjustments.items():
        columns.shift(row, adjustment.amounts, adjustment.non_zero, sign)
