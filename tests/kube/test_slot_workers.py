"""Work in groups, each piece in its turn: what waits has no task, and whoever ends a request takes the next piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from koordinator.base.clock import ManualClock
from koordinator.kube.errors import UnsentError
from koordinator.kube.request_slots import OverdueRequests, RequestSlots, Ticket
from koordinator.kube.slot_workers import SlotWorkers

LIMIT = 3
NAME = "piece"


class Bench:
    """Pieces of work are answered when the test says so."""

    def __init__(self, limit: int = LIMIT, most_overdue: int = 0) -> None:
        self.clock = ManualClock()
        self.slots = RequestSlots(limit, self.clock, overdue=OverdueRequests(most_overdue))
        self.workers = SlotWorkers(self.slots, self._work, self._unsent, NAME)
        self.open: dict[str, asyncio.Future[bool]] = {}
        self.unsent: list[str] = []
        self.by_task: dict[str, asyncio.Task[object] | None] = {}

    async def _work(self, item: str, ticket: Ticket) -> bool:
        assert ticket.sent_at == self.clock.monotonic()
        self.by_task[item] = asyncio.current_task()
        self.open[item] = asyncio.get_running_loop().create_future()
        try:
            return await self.open[item]
        finally:
            del self.open[item]

    def _unsent(self, item: str, error: UnsentError) -> None:
        self.unsent.append(item)

    def submit(self, *items: str, group: str = "a") -> None:
        for item in items:
            self.workers.submit(group, item)

    async def answer(self, *items: str) -> None:
        for item in items:
            self.open[item].set_result(True)
        await self.settle()

    async def settle(self, seconds: float = 0.0) -> None:
        for step in (*[0.5] * int(seconds * 2), 0.0):
            await self.clock.advance(step)
            for _ in range(6):
                await asyncio.sleep(0)

    @property
    def tasks(self) -> int:
        """How many there are that do the work."""
        return sum(1 for task in asyncio.all_tasks() if task.get_name() == NAME)

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            running = asyncio.create_task(self.workers.run())
            await self.settle()
            await story()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert self.tasks == 0

        asyncio.run(run())


def test_what_waits_for_its_turn_has_no_task() -> None:
    bench = Bench()

    async def story() -> None:
        bench.submit(*map(str, range(100)))
        await bench.settle()
        assert list(bench.open) == ["0", "1", "2"]
        assert bench.tasks == LIMIT

    bench.play(story)


def test_the_task_that_ends_a_request_makes_the_next_one() -> None:
    bench = Bench(limit=1)

    async def story() -> None:
        bench.submit("first", "second")
        await bench.settle()
        await bench.answer("first")
        assert bench.by_task["second"] is bench.by_task["first"]
        assert bench.tasks == 1

    bench.play(story)


def test_a_task_that_rests_is_woken_for_what_comes() -> None:
    bench = Bench()

    async def story() -> None:
        bench.submit("first")
        await bench.settle()
        await bench.answer("first")
        bench.submit("second")
        await bench.settle()
        assert list(bench.open) == ["second"]
        assert bench.tasks == 1

    bench.play(story)


def test_what_a_raised_limit_and_a_response_let_in_is_begun_at_once() -> None:
    bench = Bench(limit=1)

    async def story() -> None:
        bench.submit("first", "second", "third", "fourth")
        await bench.settle()
        bench.slots.limit = LIMIT
        await bench.answer("first")
        assert list(bench.open) == ["second", "third", "fourth"]

    bench.play(story)


def test_what_is_submitted_before_the_start_is_done_after_it() -> None:
    bench = Bench()
    bench.submit("early", "bird")

    async def story() -> None:
        assert list(bench.open) == ["early", "bird"]

    bench.play(story)


def test_what_is_never_answered_is_handed_back_unsent_to_those_behind_it() -> None:
    bench = Bench(limit=2, most_overdue=4)

    async def story() -> None:
        bench.submit(*(f"hanging {number}" for number in range(8)))
        await bench.settle(60)
        assert bench.unsent
        assert not {*bench.unsent} & bench.by_task.keys()

    bench.play(story)
