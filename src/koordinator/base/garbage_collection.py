"""When Python looks for garbage: not in what the initial lists bring, which is millions of objects that stay.

Reference counts free nearly everything; only cycles need the collector, and it finds them by walking through what
exists. Left alone it would do so again and again while the caches grow, for nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from koordinator.base.clock import Clock
from koordinator.base.deadline import within

_LONGEST_REST: Final = 120.0
"""Seconds. Lists that take longer wait for something, and failures leave garbage meanwhile."""
Thresholds = tuple[int, int, int]
RARELY: Final[Thresholds] = (50_000, 50, 100)
"""For those whom a pause of some 25 ms does not hurt."""
BRIEFLY: Final[Thresholds] = (5_000, 200, 100)
"""For those who answer within milliseconds: the same work in ten times as many pauses, of 2 to 3 ms."""


async def spare_initial_lists(
    synced: Callable[[], Coroutine[Any, Any, None]], clock: Clock, thresholds: Thresholds = RARELY
) -> None:
    """Let the collector rest until ``synced`` returns, and leave alone for ever what there is then; afterwards it works
    by ``thresholds``."""
    gc.collect()
    gc.set_threshold(*thresholds)
    gc.disable()
    try:
        with suppress(TimeoutError):
            await within(clock, _LONGEST_REST, synced())
    finally:
        # In this order: enabled, it would look at all that has come meanwhile at once.
        gc.freeze()
        gc.enable()
    await synced()
    gc.freeze()
