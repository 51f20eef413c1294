"""Arithmetic that reads the same for one row, in plain numbers, and for many rows, in arrays.

Most decisions evaluate a single row, where plain numbers are several times as fast as arrays; a new class of pods
evaluates all rows. A rule written with these operations needs no second form for the other case.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Rows, at

SomeRows = Rows | int
"""Row numbers, which ascend, or a single one."""


def of_rows(column: NDArray[Any], rows: SomeRows) -> Any:
    """``column[rows]``, to be read only."""
    return column.item(rows) if isinstance(rows, int) else at(column, rows)


def look_up(table: NDArray[Any], column: NDArray[Any], rows: SomeRows) -> Any:
    """``table[column[rows]]``."""
    return table.item(column.item(rows)) if isinstance(rows, int) else table.take(at(column, rows))


def chosen(condition: Any, value: Any, otherwise: Any) -> Any:
    """``value`` where the condition holds, else ``otherwise``."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, value, otherwise)
    return value if condition else otherwise


def feasible(rows: SomeRows) -> Any:
    """The code FEASIBLE, which is 0, for each of ``rows``."""
    return 0 if isinstance(rows, int) else np.zeros(rows.shape[0], dtype=np.int64)
