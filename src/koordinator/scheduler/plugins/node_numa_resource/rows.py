"""The rows of nodes that apply a policy to pods without requirements of their own: as arrays, since these may be all
nodes."""

from __future__ import annotations

from typing import cast

import numpy as np

from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows, at
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.plugins.node_numa_resource.allocation import MILLI
from koordinator.scheduler.plugins.node_numa_resource.node_state import NodeState, short_of_cpu

_FIRST = 64


class SpecialRows(set[int]):
    """The rows, with what arrays say of them."""

    def __init__(self) -> None:
        super().__init__()
        self._by_itself: Mask = np.zeros(_FIRST, dtype=np.bool_)
        """The rows that have to be evaluated one by one."""
        self._amplified: Mask = np.zeros(_FIRST, dtype=np.bool_)
        """Those of the other rows whose CPU is amplified."""
        self._bound: Ints = np.zeros(_FIRST, dtype=np.int64)
        """The CPU that pods on the rows are bound to, in milli-CPU."""
        self._added: Ints = np.zeros(_FIRST, dtype=np.int64)
        """NodeState.added_cpu."""

    def note(self, row: int, node: NodeState | None) -> None:
        """Update the row from the present policies of its node; None if the node is gone."""
        self._fit(row)
        is_special = node is not None and not node.is_plain
        if is_special:
            self.add(row)
        else:
            self.discard(row)
        self._amplified[row] = node is not None and is_special and _only_multiplies(node)
        self._by_itself[row] = is_special and not self._amplified[row]
        self._bound[row] = node.bound_cpus * MILLI if node is not None else 0
        self._added[row] = node.added_cpu if node is not None else 0

    def among(self, rows: Rows) -> Rows:
        """The indices in ``rows`` of those that have to be evaluated one by one."""
        if not self:
            return rows[:0]
        self._fit(int(rows.max(initial=0)))
        return np.flatnonzero(self._by_itself.take(rows))

    def short_of_cpu(self, columns: NodeColumns, rows: Rows, cpu: int) -> Mask:
        """For each of ``rows``, whether amplification is the node's only policy and it has less than ``cpu``
        (milli-CPU) left when that of bound pods counts amplified."""
        if not self or not cpu:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        self._fit(int(rows.max(initial=0)))
        requested, allocatable = (
            at(columns.taken(CPU, with_defaults=False), rows),
            at(columns.allocatable[:, CPU], rows),
        )
        short = short_of_cpu(cpu, allocatable, requested, self._bound.take(rows), self._added.take(rows))
        return self._amplified.take(rows) & cast("Mask", short)

    def _fit(self, row: int) -> None:
        missing = row + 1 - self._by_itself.shape[0]
        if missing > 0:
            more = max(missing, self._by_itself.shape[0])
            self._by_itself = np.concatenate([self._by_itself, np.zeros(more, dtype=np.bool_)])
            self._amplified = np.concatenate([self._amplified, np.zeros(more, dtype=np.bool_)])
            self._bound = np.concatenate([self._bound, np.zeros(more, dtype=np.int64)])
            self._added = np.concatenate([self._added, np.zeros(more, dtype=np.int64)])


def _only_multiplies(node: NodeState) -> bool:
    """Whether CPU amplification is the node's only policy."""
    is_known = node.topology is None or bool(node.cpus)
    return is_known and not node.rules.bind and not node.rules.numa and node.rules.cpu_ratio is not None
