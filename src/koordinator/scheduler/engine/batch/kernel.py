"""What one plugin says of a few rows for many kinds of pods at once: values (rows, kinds) instead of one array a kind.

Where many kinds of pods take turns, each of them asks every plugin about the few dozen rows that have changed since it
was last looked at, and most of that is what numpy costs to be called. To ask once for all of them costs as much.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.pod_info import PodInfo


class BatchKernel(ABC):
    """Kinds of pods by place: 0, 1, 2 ..."""

    @abstractmethod
    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        """The next place is taken by pods like ``pod``; ``state`` is what the plugin has prepared for them."""

    @abstractmethod
    def evaluate(self, rows: Rows) -> Ints:
        """What the plugin's ``filter`` or ``score`` would say of ``rows``, which ascend; shape (rows, kinds)."""


class Slots:
    """Arrays of which the last axis has an entry for each place, with room for more."""

    _FIRST: Final = 16

    def __init__(self, **arrays: NDArray[Any]) -> None:
        """Each array without places yet: shape (..., 0)."""
        self._arrays = arrays
        self.count = 0

    def put(self, **values: Any) -> None:
        capacity = next(iter(self._arrays.values())).shape[-1]
        if self.count == capacity:
            more = max(self._FIRST, capacity)
            for name, array in self._arrays.items():
                self._arrays[name] = np.concatenate([array, np.zeros((*array.shape[:-1], more), array.dtype)], axis=-1)
        for name, value in values.items():
            self._arrays[name][..., self.count] = value
        self.count += 1

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name][..., : self.count]
