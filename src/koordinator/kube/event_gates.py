"""How many events are written at a time: the more of them wait, the more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class WriterGates:
    """A gate for each writer, of which the first are open. One writer is enough until ``backlog`` events wait; then two
    until twice as many wait; and so on."""

    def __init__(self, writers: int, backlog: int) -> None:
        self.gates = [asyncio.Event() for _ in range(writers)]
        self._backlog = backlog
        self._open = 0
        self._hurries = False
        self.follow(0)

    def follow(self, waiting: int) -> None:
        """So many wait now."""
        if self._hurries or (self._open - 1) * self._backlog <= waiting < self._open * self._backlog:
            return
        self._open = 1 + waiting // self._backlog
        for number, gate in enumerate(self.gates):
            if number < self._open:
                gate.set()
            else:
                gate.clear()

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """All are open meanwhile."""
        for gate in self.gates:
            gate.set()
        self._hurries = True
        try:
            yield
        finally:
            # The next change of what waits closes those that are not called for.
            self._hurries, self._open = False, 0
