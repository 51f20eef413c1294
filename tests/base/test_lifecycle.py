"""In which order a program starts and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.lifecycle import Lifecycle


class Bench:
    """A lifecycle whose parts note when they begin and end."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lifecycle = Lifecycle(self.clock)
        self.stop = asyncio.Event()
        self.noted: list[str] = []

    def note(self, text: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def body() -> None:
            self.noted.append(text)

        return body

    def part(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        """Goes on until it is cancelled."""

        async def body() -> None:
            self.noted.append(f"{name} begins")
            try:
                await asyncio.Event().wait()
            finally:
                self.noted.append(f"{name} ends")

        return body

    def stubborn(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        """Waits for something more when it is cancelled for the first time."""

        async def body() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.noted.append(f"{name} ends")

        return body

    @asynccontextmanager
    async def server(self) -> AsyncIterator[None]:
        self.noted.append("server begins")
        try:
            yield
        finally:
            self.noted.append("server ends")

    async def stop_after(self, seconds: float) -> None:
        """Run, ask to stop, and let ``seconds`` pass; the program has ended then."""
        running = asyncio.create_task(self.lifecycle.run(self.stop))
        await self.clock.advance(0)
        self.stop.set()
        await self.clock.advance(seconds)
        assert running.done()
        await running


def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> list[str]:
    async def play() -> list[str]:
        bench = Bench()
        await scenario(bench)
        return bench.noted

    return asyncio.run(play())


def test_work_ends_before_what_it_depends_on() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lifecycle.work("work", bench.part("work"))
        bench.lifecycle.at_end(bench.note("flushed"))
        bench.lifecycle.background("background", bench.part("background"))
        bench.lifecycle.serve(bench.server())
        await bench.stop_after(0)

    assert run(scenario) == [
        "server begins",
        "background begins",
        "work begins",
        "work ends",
        "flushed",
        "background ends",
        "server ends",
    ]


def test_work_that_watches_for_the_end_finishes_what_it_has_in_hand() -> None:
    async def scenario(bench: Bench) -> None:
        async def work() -> None:
            await bench.stop.wait()
            await bench.clock.sleep(3)
            bench.noted.append("finished")

        bench.lifecycle.work("work", work, drain=lambda: 5)
        await bench.stop_after(3)

    assert run(scenario) == ["finished"]


def test_work_that_does_not_finish_in_time_is_cancelled() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lifecycle.work("work", bench.part("work"), drain=lambda: 5)
        running = asyncio.create_task(bench.lifecycle.run(bench.stop))
        await bench.clock.advance(0)
        bench.stop.set()
        await bench.clock.advance(4.9)
        assert bench.noted == ["work begins"]
        await bench.clock.advance(0.2)
        await running

    assert run(scenario) == ["work begins", "work ends"]


def test_work_that_waits_for_a_response_after_it_was_cancelled_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.lifecycle.work("controllers", bench.stubborn("work"), grace=1.5)
        await bench.stop_after(1.5)

    assert run(scenario) == ["work ends"]
    assert "controllers: did not end within 1.5s of its cancellation" in caplog.text


def test_a_program_whose_work_is_done_ends() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lifecycle.work("one", bench.note("one"))
        bench.lifecycle.work("other", bench.note("other"))
        bench.lifecycle.background("background", bench.part("background"))
        await bench.lifecycle.run(bench.stop)

    assert sorted(run(scenario)) == ["background begins", "background ends", "one", "other"]


def test_work_goes_on_while_other_work_is_not_done() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lifecycle.work("one", bench.note("one"))
        bench.lifecycle.work("other", bench.part("other"))
        running = asyncio.create_task(bench.lifecycle.run(bench.stop))
        await bench.clock.advance(10)
        assert not running.done()
        bench.stop.set()
        await running

    assert run(scenario) == ["one", "other begins", "other ends"]


@pytest.mark.parametrize("part", ["work", "background"])
def test_a_part_that_cannot_go_on_ends_the_program(part: str) -> None:
    async def scenario(bench: Bench) -> None:
        async def fail() -> None:
            raise OSError("address in use")

        bench.lifecycle.serve(bench.server())
        add = bench.lifecycle.work if part == "work" else bench.lifecycle.background
        add("failing", fail)
        bench.lifecycle.work("other", bench.part("other"))
        with pytest.raises(ExceptionGroup) as raised:
            await bench.lifecycle.run(bench.stop)
        assert raised.group_contains(OSError, match="address in use")

    assert run(scenario)[-2:] == ["other ends", "server ends"]
