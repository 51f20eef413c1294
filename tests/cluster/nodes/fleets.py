"""A fleet that is played from its registration to the end of a script, on an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import cast

from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario import Scenario, default_scenario, scale
from tests.in_memory_api import InMemoryApi

Script = Callable[[InMemoryApi, Fleet, ManualClock], Awaitable[None]]


def play(
    script: Script,
    api: InMemoryApi | None = None,
    scenario: Scenario | None = None,
    *,
    pace: tuple[str, str] | None = None,
) -> InMemoryApi:
    """Run a fleet, of three nodes where no scenario says otherwise; ``pace`` is its ConfigMap, if it has one."""
    api = api or InMemoryApi()

    async def run() -> None:
        clock = cast("ManualClock", api.clock)
        fleet = Fleet(
            api.client(),
            scenario or scale(default_scenario(), 3),
            clock=clock,
            random=Random(1),
            concurrency=8,
            pace=pace,
        )
        running = asyncio.create_task(fleet.run())
        try:
            while not fleet.nodes and not running.done():
                await clock.advance(0.5)
            if running.done():
                await running
            await script(api, fleet, clock)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    return api


async def nothing(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
    """The script of a fleet that only begins."""
    await clock.advance(1)
