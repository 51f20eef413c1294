"""Maps resource names to columns of NodeColumns.

A resource gets a column of its own when a node first offers it. Pods, Reservations and quotas may name any resource:
their amounts are kept by name, and what no node offers has no column (UNOFFERED stands for it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from koordinator.api.quantity import Quantity
from koordinator.api.usable_amounts import bounded

CPU: Final = 0
MEMORY: Final = 1
EPHEMERAL_STORAGE: Final = 2
PODS: Final = 3
UNOFFERED: Final = 4
"""Of all resources that no node has offered yet: its amounts are 0 on every node. What pods request of them on a node
is in ``RowIntegers.unoffered``."""
_OFFERED: Final = ("cpu", "memory", "ephemeral-storage", "pods")


class _Columns(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return UNOFFERED


class ResourceIndex:
    """Resource name -> column. CPU is in milli-CPU, everything else in whole units (bytes, counts)."""

    def __init__(self, on_new: Callable[[str], None]) -> None:
        """``on_new`` is called with each resource that has got a column."""
        self._on_new = on_new
        self._columns = _Columns({name: column for column, name in enumerate(_OFFERED)})
        self.column_of: Mapping[str, int] = self._columns
        """By name, of the resources that have a column; every other name maps to UNOFFERED."""
        self.width = UNOFFERED + 1
        """The number of columns, UNOFFERED included."""

    def column(self, name: str) -> int:
        """The column of ``name``, allocated if it is new. For what nodes offer and what the configuration names, never
        for what pods request."""
        column = self._columns[name]
        if column == UNOFFERED:
            column = self._columns[name] = self.width
            self.width += 1
            self._on_new(name)
        return column


def whole_amounts(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """Integer amounts in the units of columns, within the bounds of what can be meant."""
    return {name: bounded(amount.milli if name == "cpu" else amount.value) for name, amount in amounts.items()}
