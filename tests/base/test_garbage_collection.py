"""The collector while the initial lists come in, and afterwards."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.garbage_collection import BRIEFLY, RARELY, collecting_rarely, spare_imports, spare_initial_lists

Story = Callable[[ManualClock, asyncio.Event], Awaitable[None]]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What is frozen stays so: if the collector traversed the thousands of tests again, each later one would pay."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def play(story: Story) -> None:
    async def run() -> None:
        clock, synced = ManualClock(), asyncio.Event()

        async def wait_synced() -> None:
            await synced.wait()

        async with asyncio.TaskGroup() as tasks:
            sparing = tasks.create_task(spare_initial_lists(wait_synced, clock))
            await clock.advance(0)
            await story(clock, synced)
            await clock.advance(0)
            sparing.cancel()

    asyncio.run(run())
    assert gc.isenabled()


def test_it_rests_until_the_lists_are_complete() -> None:
    async def story(clock: ManualClock, synced: asyncio.Event) -> None:
        assert not gc.isenabled()
        synced.set()

    frozen = gc.get_freeze_count()
    play(story)
    assert gc.get_freeze_count() > frozen


def test_it_works_again_when_the_lists_do_not_come() -> None:
    async def story(clock: ManualClock, synced: asyncio.Event) -> None:
        await clock.advance(200.0)
        assert gc.isenabled()
        synced.set()

    frozen = gc.get_freeze_count()
    play(story)
    assert gc.get_freeze_count() > frozen


def test_it_works_again_after_a_cancellation() -> None:
    async def story(clock: ManualClock, synced: asyncio.Event) -> None:
        assert not gc.isenabled()

    play(story)


def test_what_is_loaded_is_never_looked_at_again() -> None:
    frozen = gc.get_freeze_count()
    spare_imports()
    assert gc.get_freeze_count() > frozen
    assert gc.get_threshold() == BRIEFLY


def test_what_is_made_meanwhile_is_collected_afterwards() -> None:
    frozen, thresholds = gc.get_freeze_count(), gc.get_threshold()
    with collecting_rarely():
        assert gc.get_threshold() == RARELY
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() == frozen
