"""How many events are written at a time.

While a program is busy with what its events tell of (bindings, say), few: where the API server is the bottleneck, they
should not hold that up, but they should not fall behind for ever either. Otherwise all: many requests at a time cost
this program, and the server, less than one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class WriterGates:
    """A gate for each writer, of which the first are open: all, or while ``is_busy`` one until ``backlog`` events wait,
    then two until twice as many wait, and so on."""

    def __init__(self, writers: int, backlog: int) -> None:
        self.gates = [asyncio.Event() for _ in range(writers)]
        self._backlog = backlog
        self.is_busy: Callable[[], bool] = _never
        self._open = 0
        self._hurries = False
        self.follow(0)

    def follow(self, waiting: int) -> None:
        """So many wait now."""
        gives_way = self.is_busy() and not self._hurries
        self._set(1 + waiting // self._backlog if gives_way else len(self.gates))

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """All are open meanwhile; the next change of what waits closes those that are not called for."""
        self._hurries = True
        self._set(len(self.gates))
        try:
            yield
        finally:
            self._hurries = False

    def _set(self, wanted: int) -> None:
        if wanted == self._open:
            return
        self._open = wanted
        for number, gate in enumerate(self.gates):
            if number < wanted:
                gate.set()
            else:
                gate.clear()


def _never() -> bool:
    return False
