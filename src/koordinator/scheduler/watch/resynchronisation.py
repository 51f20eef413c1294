"""When event handlers that have failed are rebuilt: soon, and then with increasing intervals, since it takes time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.scheduler.engine.resync import Resync
from koordinator.scheduler.plugin_errors import PluginErrors

_PAUSES: Final = BackoffPolicy(initial=1.0, maximum=60.0, jitter=0.25)


class Resynchronisation:
    """``run`` until cancelled, also while another instance leads. ``on_recovered`` is called when the results of an
    event handler may have changed."""

    def __init__(
        self, resync: Resync, errors: PluginErrors, on_recovered: Callable[[], None], clock: Clock, random: Random
    ) -> None:
        self._resync = resync
        self._errors = errors
        self._on_recovered = on_recovered
        self._clock = clock
        self._random = random
        self._stale = asyncio.Event()

    def wake(self) -> None:
        """An event handler is stale."""
        self._stale.set()

    async def run(self) -> None:
        backoff = Backoff(_PAUSES, self._clock, self._random)
        while True:
            await self._stale.wait()
            self._stale.clear()
            while self._resync.is_needed:
                await self._clock.sleep(backoff.next())
                self._rebuild()

    def _rebuild(self) -> None:
        recovered, given_up = self._resync.run()
        for name in recovered:
            self._errors.recovered(name)
        for name, left_out in given_up.items():
            self._errors.given_up(name, left_out)
        self._on_recovered()
