"""Maps resource names to columns of NodeColumns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.quantity import Quantity
from koordinator.api.usable_amounts import bounded

CPU: Final = 0
MEMORY: Final = 1
EPHEMERAL_STORAGE: Final = 2
PODS: Final = 3
_BUILT_IN: Final = ("cpu", "memory", "ephemeral-storage", "pods")


class ResourceIndex:
    """Resource name -> column. CPU is in milli-CPU, everything else in whole units (bytes, counts)."""

    def __init__(self) -> None:
        self._columns = {name: column for column, name in enumerate(_BUILT_IN)}
        self._names = list(_BUILT_IN)

    def __len__(self) -> int:
        return len(self._names)

    def column(self, name: str) -> int:
        """The column of ``name``, allocated if it is new; NodeColumns grows to it on its next write."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = len(self._names)
            self._names.append(name)
        return column

    def name(self, column: int) -> str:
        return self._names[column]

    def vector(self, amounts: Mapping[str, Quantity]) -> dict[int, int]:
        """Column -> integer amount in the column's unit, within the bounds of what can be meant."""
        return {
            self.column(name): bounded(amount.milli if name == "cpu" else amount.value)
            for name, amount in amounts.items()
        }
