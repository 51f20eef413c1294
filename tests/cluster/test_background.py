"""Loops of the server: what ends one iteration ends neither the loop nor the others, and health tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from koordinator.base.clock import ManualClock
from koordinator.cluster.background import BackgroundLoops
from koordinator.cluster.storage.interface import Compacted, StorageError, StorageFull

Body = Callable[[], AsyncIterator[None]]


class _Scripted:
    """Each start raises the next error, after one iteration that succeeds for None; at the end it waits for ever."""

    def __init__(self, *script: Exception | None) -> None:
        self._script = list(script)
        self.starts = 0

    async def __call__(self) -> AsyncIterator[None]:
        self.starts += 1
        while self._script:
            step = self._script.pop(0)
            if step is not None:
                raise step
            yield
        await asyncio.Event().wait()


def _play(scenario: Callable[[BackgroundLoops, ManualClock], Awaitable[None]], **bodies: Body) -> None:
    async def main() -> None:
        clock = ManualClock()
        loops = BackgroundLoops(clock, Random(1))
        for name, body in bodies.items():
            loops.add(name, body)
        running = asyncio.ensure_future(loops.run())
        try:
            await scenario(loops, clock)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait((running,))

    asyncio.run(main())


@pytest.mark.parametrize("error", [KeyError("spec"), StorageError("broken"), ExceptionGroup("several", [ValueError()])])
def test_a_loop_that_fails_is_started_again_after_a_pause(error: Exception) -> None:
    body = _Scripted(error, None)

    async def scenario(loops: BackgroundLoops, clock: ManualClock) -> None:
        await clock.advance(0)
        assert body.starts == 1
        await clock.advance(3)
        assert body.starts == 2

    _play(scenario, loop=body)


def test_pauses_grow_until_the_loop_succeeds() -> None:
    body = _Scripted(*[ValueError()] * 1000)

    async def scenario(loops: BackgroundLoops, clock: ManualClock) -> None:
        await clock.advance(600)
        assert 10 < body.starts < 60

    _play(scenario, loop=body)


def test_a_history_that_is_gone_means_a_new_list_at_once() -> None:
    body = _Scripted(Compacted(1, 2), None)

    async def scenario(loops: BackgroundLoops, clock: ManualClock) -> None:
        await clock.advance(0)
        assert (body.starts, loops.check("loop")) == (2, "")

    _play(scenario, loop=body)


def test_a_history_that_is_always_gone_does_not_spin() -> None:
    body = _Scripted(*[Compacted(1, 2)] * 1000)

    async def scenario(loops: BackgroundLoops, clock: ManualClock) -> None:
        await clock.advance(60)
        assert body.starts < 60

    _play(scenario, loop=body)


def test_health_tells_what_a_loop_failed_of_until_it_succeeds() -> None:
    body = _Scripted(ValueError("a bad object"), None)

    async def scenario(loops: BackgroundLoops, clock: ManualClock) -> None:
        await clock.advance(0)
        assert "a bad object" in loops.check("loop")
        await clock.advance(3)
        assert loops.check("loop") == ""

    _play(scenario, loop=body)


def test_a_loop_that_waits_for_the_store_is_not_ill_itself() -> None:
    """The store has a check of its own; to start the server anew would help nobody."""

    async def scenario(loops: BackgroundLoops, clock: ManualClock) -> None:
        await clock.advance(0)
        assert loops.check("loop") == ""

    _play(scenario, loop=_Scripted(StorageFull("no room")))


def test_other_loops_go_on() -> None:
    healthy = _Scripted(None, None)

    async def scenario(loops: BackgroundLoops, clock: ManualClock) -> None:
        await clock.advance(5)
        assert (healthy.starts, loops.check("healthy")) == (1, "")

    _play(scenario, failing=_Scripted(*[ValueError()] * 10), healthy=healthy)


def test_a_loop_ends_with_the_store() -> None:
    async def body() -> AsyncIterator[None]:
        yield

    async def main() -> None:
        loops = BackgroundLoops(ManualClock(), Random(1))
        loops.add("loop", body)
        async with asyncio.timeout(5):
            await loops.run()

    asyncio.run(main())
