"""What an evaluation costs, in the units of the real server, and where it stops.

Costs are charged twice over. ``cost`` is what the real server counts, with its limits, so that the same expressions are
refused. ``work`` is what Python really does: where Go is fast, the former leaves that out (to compare two lists costs
one unit there, whatever their length).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from koordinator.model.cel.errors import CostExceeded, TakesLong

PER_CALL: Final = 1_000_000
"""Units of one evaluation of one expression (k8s.io/apiserver/pkg/apis/cel)."""
PER_OBJECT: Final = 10_000_000
"""Units of all rules of a custom resource, or of a policy with a binding, for one request."""
PER_MATCH_CONDITIONS: Final = 2_500_000
_WORK: Final = 4_000_000
"""Steps of our own that one evaluation may take, which is about as long as it takes to reach ``PER_CALL``."""
_STARTED: Final = 8
"""Steps that it takes to begin an evaluation and to end it."""
INLINE: Final = 4_000
"""Steps that an event loop may wait for: a few milliseconds."""


class Allowance:
    """What is left of the steps that the caller can wait for, and what is done when they are used up."""

    __slots__ = ("_pause", "_steps", "left")

    def __init__(self, steps: int, pause: Callable[[], None] | None) -> None:
        self._steps = self.left = steps
        self._pause = pause

    def take(self, steps: int) -> None:
        """Raises TakesLong where there is no pause."""
        self.left -= steps
        if self.left >= 0:
            return
        if self._pause is None:
            raise TakesLong
        self._pause()
        self.left = self._steps


_ALLOWANCE: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


@contextmanager
def allowance(steps: int, pause: Callable[[], None] | None = None) -> Iterator[None]:
    """After so many steps, what is compiled and evaluated in the block raises TakesLong, or calls ``pause``."""
    token = _ALLOWANCE.set(Allowance(steps, pause))
    try:
        yield
    finally:
        _ALLOWANCE.reset(token)


def take(steps: int) -> None:
    """Charge work outside of an evaluation, such as compiling, to the caller's allowance. Raises TakesLong."""
    left = _ALLOWANCE.get()
    if left is not None:
        left.take(steps)


class Meter:
    """One evaluation: its variables, and what it has cost."""

    __slots__ = ("_allowance", "_taken", "cost", "limit", "next_check", "variables", "work")

    def __init__(self, variables: dict[str, Any], limit: int = PER_CALL) -> None:
        self.variables = variables
        self.cost = 0
        self.limit = limit
        self.work = 0
        self._taken = 0
        self._allowance = _ALLOWANCE.get()
        self.next_check = self._next()

    def charge(self, cost: int) -> None:
        """Raises CostExceeded and TakesLong."""
        self.cost += cost
        self.work += 1 + (cost >> 4)
        if self.cost > self.limit:
            raise CostExceeded
        if self.work > self.next_check:
            self._check()

    def labour(self, steps: int) -> None:
        """Work that the real server does not count. Raises CostExceeded and TakesLong."""
        self.work += steps
        if self.work > self.next_check:
            self._check()

    def _next(self) -> int:
        """The amount of work at which to look again."""
        return _WORK if self._allowance is None else min(_WORK, self.work + max(self._allowance.left, 0))

    def _check(self) -> None:
        if self.work > _WORK:
            raise CostExceeded
        self._take(0)
        self.next_check = self._next()

    def close(self) -> None:
        """Take what was done from the caller's allowance. Raises TakesLong."""
        self._take(_STARTED)

    def _take(self, more: int) -> None:
        if self._allowance is not None:
            steps, self._taken = self.work - self._taken + more, self.work
            self._allowance.take(steps)
