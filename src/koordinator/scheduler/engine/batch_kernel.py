"""The results of one plugin on a few rows for many kinds of pods at once: (rows, kinds) instead of one array for each
kind.

Where many kinds of pods alternate, each of them has every plugin evaluate the few dozen rows that have changed since
its last turn, and most of that time is numpy's overhead per call. One call for all of them costs as much.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.pod_info import PodInfo


class BatchKernel(ABC):
    """The kinds of pods have the slots 0, 1, 2 ..."""

    @abstractmethod
    def put(self, slot: int, pod: PodInfo, state: Any) -> None:
        """Fill the next slot with pods like ``pod``; ``state`` is what the plugin has prepared for them."""

    @abstractmethod
    def evaluate(self, rows: Rows) -> Ints | None:
        """The results of the plugin's ``filter`` or ``score`` for ``rows``, which ascend; shape (rows, kinds). None if
        all of them are 0, as those of filters mostly are."""


class BatchRefresher(Protocol):
    """Refreshes cached results together with others."""

    version: int
    """The cached results that it refreshes are current for at least this version of the columns."""

    def refresh(self) -> None:
        """Refresh to the present version if that is far ahead."""


class BatchHandle(Protocol):
    """The batch evaluation that refreshes cached results of one origin."""

    evaluate: Callable[[Rows], Ints | None]
    """See BatchKernel.evaluate."""
    has_rejected: bool
    """Whether any of them ever has rejected a row."""


class Slots:
    """Arrays whose last axis has an entry for each slot, with spare capacity."""

    _FIRST: Final = 16

    def __init__(self, **arrays: NDArray[Any]) -> None:
        """Each array without slots yet: shape (..., 0)."""
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
