"""Who may send, and when: what hangs or waits keeps nobody else waiting, and the bounds hold whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.kube.attempts import Attempts, Patience, persist
from koordinator.kube.errors import ApiStatusError, KubeError, TransportError, UnsentError, WriteRefusedError
from koordinator.kube.request_slots import OverdueRequests, RequestSlots, Ticket
from tests.examples import examples

REFUSED = ApiStatusError(403, "Forbidden", "no")
FAILED = ApiStatusError(500, "InternalError", "etcd is away")


class Server:
    """Requests are answered when the test says so."""

    def __init__(self, limit: int = 4, most: int = 16) -> None:
        self.clock = ManualClock()
        self.overdue = OverdueRequests(most)
        self.slots = RequestSlots(limit, self.clock, overdue=self.overdue)
        self.open: dict[str, asyncio.Future[None]] = {}
        """By name, in the order in which they came."""
        self.ended: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def ask(self, name: str, group: str = "a") -> None:
        self._tasks.append(asyncio.create_task(self._request(name, group)))

    async def _request(self, name: str, group: str) -> None:
        async def request() -> None:
            self.open[name] = asyncio.get_running_loop().create_future()
            try:
                await self.open[name]
            finally:
                del self.open[name]

        try:
            await self.slots.send(group, request)
        except KubeError as error:
            self.ended[name] = str(error)
        except asyncio.CancelledError:
            self.ended[name] = "cancelled"
        else:
            self.ended[name] = "answered"

    async def answer(self, name: str, error: KubeError | None = None) -> None:
        if error is None:
            self.open[name].set_result(None)
        else:
            self.open[name].set_exception(error)
        await self.settle()

    async def cancel(self, number: int) -> None:
        self._tasks[number % len(self._tasks)].cancel()

    async def settle(self, seconds: float = 0.0) -> None:
        """Step by step, since whoever gets a slot sends at the time of that."""
        for step in (*[0.5] * int(seconds * 2), seconds % 0.5):
            await self.clock.advance(step)
            for _ in range(6):
                await self.clock.advance(0)

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            running = asyncio.create_task(self.slots.run())
            await story()
            for task in [running, *self._tasks]:
                task.cancel()
            await asyncio.gather(running, *self._tasks, return_exceptions=True)

        asyncio.run(run())


def test_a_slot_is_taken_by_the_next_one_in_the_order_in_which_they_came() -> None:
    server = Server(limit=2)

    async def story() -> None:
        for number in range(5):
            server.ask(f"r{number}")
        await server.settle()
        assert list(server.open) == ["r0", "r1"]
        await server.answer("r1", FAILED)
        await server.answer("r0")
        assert list(server.open) == ["r2", "r3"]
        assert server.ended == {"r1": str(FAILED), "r0": "answered"}

    server.play(story)


def test_groups_take_turns() -> None:
    server = Server(limit=1)

    async def story() -> None:
        for number in range(4):
            server.ask(f"many-{number}", "a")
        for name in ("one", "other"):
            server.ask(name, "b")
        order = []
        for _ in range(6):
            await server.settle()
            (name,) = server.open
            order.append(name)
            await server.answer(name)
        assert order == ["many-0", "many-1", "one", "many-2", "other", "many-3"]

    server.play(story)


def test_behind_a_thousand_that_hang_others_wait_no_longer_than_for_what_is_in_flight() -> None:
    server = Server(limit=32, most=128)

    async def story() -> None:
        for number in range(1000):
            server.ask(f"hanging-{number}", "bad")
        server.ask("good", "b")
        await server.settle(3)
        assert "good" in server.open

    server.play(story)


def test_what_has_no_answer_lends_its_slot_to_others() -> None:
    server = Server(limit=2)

    async def story() -> None:
        for number in range(4):
            server.ask(f"hanging-{number}")
        server.ask("good", "b")
        await server.settle()
        assert "good" not in server.open
        await server.settle(5)
        assert "good" in server.open

    server.play(story)


def test_the_others_of_a_namespace_that_hangs_go_one_by_one() -> None:
    server = Server(limit=4, most=16)

    async def story() -> None:
        for number in range(12):
            server.ask(f"hanging-{number}")
        await server.settle(9)
        for number in range(3):
            server.ask(f"good-{number}")
        await server.settle(1)
        assert server.overdue.count == 12
        for number in range(3):
            await server.settle()
            assert [name for name in server.open if name.startswith("good")] == [f"good-{number}"]
            await server.answer(f"good-{number}")

    server.play(story)


def test_one_namespace_leaves_something_for_the_next_ones() -> None:
    server = Server(limit=8, most=32)

    async def story() -> None:
        for group in ("a", "b"):
            for number in range(60):
                server.ask(f"{group}-{number}", group)
        await server.settle(120)
        server.ask("good", "good")
        await server.settle(10)
        assert "good" in server.open

    server.play(story)


def test_what_waited_in_vain_fails_unsent_and_says_why() -> None:
    server = Server(limit=2, most=4)

    async def story() -> None:
        for number in range(10):
            server.ask(f"hanging-{number}", "shop")
        await server.settle(20)
        assert server.ended == {}
        await server.settle(40)
        assert set(server.ended.values()) == {
            "not sent: 4 earlier requests in namespace shop have no answer yet, and none has got one for 30 s; "
            "is there a webhook that does not answer?"
        }
        assert not server.ended.keys() & server.open.keys()

    server.play(story)


def test_who_fails_unsent_may_change_the_limit() -> None:
    """As events do, of which fewer wait then: another one steps aside in the middle of the look for those who fail."""

    async def story() -> list[str]:
        clock, failed = ManualClock(), list[str]()
        slots = RequestSlots(2, clock, overdue=OverdueRequests(4))

        def ask(name: str) -> None:
            def on_turn(ticket: Ticket, error: UnsentError | None) -> None:
                if error is None:
                    slots.begin(ticket)
                else:
                    failed.append(name)
                    slots.limit += 1

            slots.ask(name[0], on_turn)

        running = asyncio.create_task(slots.run())
        for name in ("a1", "a2", "a3", "a4", "a5", "a6"):
            ask(name)
        for _ in range(20):
            await clock.advance(0.25)
        for name in ("b1", "c1", "d1", "e1", "f1"):
            ask(name)
        for _ in range(60):
            await clock.advance(0.25)
        ask("b2")
        for _ in range(80):
            await clock.advance(0.25)
        assert not running.done(), running
        running.cancel()
        return failed

    assert "a6" in asyncio.run(story())


def test_who_waits_aside_stays_while_others_are_answered_however_slowly() -> None:
    server = Server(limit=2, most=4)

    async def story() -> None:
        for number in range(10):
            server.ask(f"slow-{number}", "shop")
        for _ in range(8):
            await server.settle(12)
            await server.answer(next(iter(server.open)))
        assert set(server.ended.values()) == {"answered"}

    server.play(story)


steps = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from("abc")),
    st.tuples(st.just("answer"), st.integers(0, 50)),
    st.tuples(st.just("fail"), st.integers(0, 50)),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("time"), st.floats(0, 9)),
)


@settings(max_examples=examples(60))
@given(st.lists(steps, max_size=60))
def test_the_bounds_hold_and_nobody_is_forgotten(story: list[tuple[str, float | str]]) -> None:
    server = Server(limit=3, most=8)

    async def play() -> None:
        asked = 0
        for what, which in story:
            if what == "ask":
                server.ask(str(asked), str(which))
                asked += 1
            elif what == "time":
                await server.settle(float(which))
            elif what == "cancel" and asked:
                await server.cancel(int(which))
            elif server.open:
                name = list(server.open)[int(which) % len(server.open)]
                await server.answer(name, FAILED if what == "fail" else None)
            await server.settle()
            assert len(server.open) - server.overdue.count <= 3
            assert 0 <= server.overdue.count <= 8
        for _ in range(asked):
            for name in list(server.open):
                await server.answer(name)
            await server.settle(1)
        assert len(server.ended) == asked
        assert (server.slots.pressing, server.overdue.count) == (0, 0)

    server.play(play)


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (FAILED, 5),
        (ApiStatusError(429, "TooManyRequests", "slowly", retry_after=1), 5),
        (ApiStatusError(429, "TooManyRequests", "slowly", retry_after=3600), 1),
        (TransportError("reset"), 5),
        (REFUSED, 1),
        (UnsentError("not sent"), 1),
        (WriteRefusedError("a dry run", "patch", "pods", "p"), 1),
    ],
)
def test_attempts_are_bounded(error: KubeError, tries: int) -> None:
    made: list[float] = []
    clock = ManualClock()

    async def request() -> None:
        made.append(clock.monotonic())
        raise error

    async def run() -> None:
        attempts = Attempts(Patience(), clock, Random(1))
        task = asyncio.create_task(persist(request, attempts, clock))
        await clock.advance(60)
        with pytest.raises(KubeError, match=str(error).partition("(")[0]):
            await task

    asyncio.run(run())
    assert len(made) == tries
    pauses = [after - before for before, after in pairwise(made)]
    least = 1.0 if isinstance(error, ApiStatusError) and error.retry_after else 0.2
    assert all(least <= pause <= 10 for pause in pauses)


def test_an_attempt_that_reaches_no_server_does_not_count() -> None:
    attempts = Attempts(Patience(attempts=2), ManualClock(), Random(1))
    unreached = TransportError("connection refused", maybe_applied=False)
    assert all(attempts.pause_after(unreached) for _ in range(20))
    assert attempts.pause_after(FAILED) is not None
    assert attempts.pause_after(FAILED) is None
