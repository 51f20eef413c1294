"""When Python's garbage collector runs: not during the initial lists, which bring millions of long-lived objects.

Reference counting frees nearly everything; only reference cycles need the collector, which finds them by traversing all
objects. With Python's defaults it would traverse them again and again while the caches grow, without finding garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from koordinator.base.clock import Clock
from koordinator.base.deadline import within

_LONGEST_REST: Final = 120.0
"""Seconds. Initial lists that take longer are waiting for a server, and failed attempts leave garbage meanwhile."""
Thresholds = tuple[int, int, int]
RARELY: Final[Thresholds] = (50_000, 50, 100)
"""For programs that can afford pauses of some 25 ms."""
BRIEFLY: Final[Thresholds] = (5_000, 200, 100)
"""For servers that respond within milliseconds: the same work in ten times as many pauses, of 2 to 3 ms each."""


def spare_imports(thresholds: Thresholds = BRIEFLY) -> None:
    """Exempt what the program has loaded, which lives for ever, from collection; afterwards the collector runs by
    ``thresholds``. For programs that respond while others wait, and whose lists are short."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """For a part of a program that makes many objects and drops them all at its end: nothing is exempt, since that
    would be for the rest of the process."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def spare_initial_lists(
    synced: Callable[[], Coroutine[Any, Any, None]], clock: Clock, thresholds: Thresholds = RARELY
) -> None:
    """Disable the collector until ``synced`` returns and then exempt the existing objects from collection permanently
    (``gc.freeze``); afterwards the collector runs by ``thresholds``."""
    gc.collect()
    gc.set_threshold(*thresholds)
    gc.disable()
    try:
        with suppress(TimeoutError):
            await within(clock, _LONGEST_REST, synced())
    finally:
        # Freeze before enabling: an enabled collector would at once traverse all objects of the initial lists.
        gc.freeze()
        gc.enable()
    await synced()
    gc.freeze()
