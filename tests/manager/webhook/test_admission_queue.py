"""Which admission comes next, and which are refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec
import pytest

from koordinator.base.clock import ManualClock
from koordinator.manager.command_line import parse_options
from koordinator.manager.webhook.admission_queue import (
    BEFORE_PODS,
    UNREADABLE,
    AdmissionQueue,
    AdmissionQueueSettings,
    OverloadedError,
    priority_of,
)
from tests.manager.webhook.reviews import review
from tests.waiting import PATIENCE

IN_A_TURN = 4


def queue_of(most_waiting: int = 100, most_in_flight: int = 0) -> AdmissionQueue:
    return AdmissionQueue(ManualClock(), AdmissionQueueSettings(most_in_flight, most_waiting))


async def admissions(priorities: Sequence[int], most: int = 100) -> tuple[list[int], list[int]]:
    """Those that arrive in one turn of the event loop: their numbers as they get their turns, and those refused."""
    queue, handled, refused = queue_of(most), list[int](), list[int]()

    async def one(number: int, priority: int) -> None:
        try:
            await queue.turn(lambda: priority)
            handled.append(number)
            queue.end()
        except OverloadedError:
            refused.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number, priority in enumerate(priorities):
            tasks.create_task(one(number, priority))
    return handled, refused


def test_those_of_one_priority_come_in_the_order_of_arrival() -> None:
    assert asyncio.run(admissions([0] * 10)) == (list(range(10)), [])


def test_of_those_that_wait_the_highest_priority_comes_first() -> None:
    handled, _ = asyncio.run(admissions([0] * IN_A_TURN + [0, 9000, 5000, 9000]))
    assert handled[IN_A_TURN:] == [5, 7, 6, 4]


def test_where_there_is_no_room_the_latest_of_the_lowest_priority_are_refused() -> None:
    handled, refused = asyncio.run(admissions([0] * IN_A_TURN + [5000, 0, 0, 9000, 9000, 9000], most=3))
    assert (handled[IN_A_TURN:], sorted(refused)) == ([7, 8, 9], [4, 5, 6])


def test_who_comes_with_the_lowest_priority_is_refused_itself() -> None:
    _, refused = asyncio.run(admissions([0] * IN_A_TURN + [9000, 9000, 9000, 5000], most=2))
    assert sorted(refused) == [6, 7]


def test_an_overload_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _, refused = asyncio.run(admissions([0] * 20, most=2))
    assert len(refused) == 20 - IN_A_TURN - 2
    assert len(caplog.records) == 1


def test_who_gives_up_waiting_costs_nobody_a_turn() -> None:
    async def scenario() -> list[int]:
        queue, handled = AdmissionQueue(ManualClock()), list[int]()

        async def one(number: int) -> None:
            await queue.turn(lambda: 0)
            handled.append(number)
            queue.end()

        tasks = [asyncio.create_task(one(number)) for number in range(IN_A_TURN + 2)]
        await asyncio.sleep(0)
        tasks[IN_A_TURN].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return handled

    assert asyncio.run(scenario()) == [0, 1, 2, 3, IN_A_TURN + 1]


def test_no_more_are_in_flight_than_may_be() -> None:
    async def scenario() -> tuple[list[int], list[int]]:
        queue, begun, ended = queue_of(most_in_flight=2), list[int](), asyncio.Event()

        async def one(number: int) -> None:
            await queue.turn(lambda: number)
            begun.append(number)
            await ended.wait()
            queue.end()

        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(one(number))
            for _ in range(20):
                await asyncio.sleep(0)
            at_first = list(begun)
            ended.set()
        return at_first, begun

    assert asyncio.run(scenario()) == ([0, 1], [0, 1, 4, 3, 2])


def test_what_comes_before_pods_does_not_wait_for_those_in_flight() -> None:
    """A pod waits for its quota to be written, and that write waits for the webhook of quotas."""

    async def scenario() -> list[str]:
        queue, begun = queue_of(most_in_flight=1), list[str]()

        async def quota() -> None:
            await queue.turn(lambda: BEFORE_PODS)
            begun.append("quota")
            queue.end()

        async def pod(name: str) -> None:
            await queue.turn(lambda: 0)
            begun.append(name)
            await quota()
            begun.append(f"{name} is charged")
            queue.end()

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
            for name in ("a", "b"):
                tasks.create_task(pod(name))
        return begun

    assert asyncio.run(scenario()) == ["a", "quota", "a is charged", "b", "quota", "b is charged"]


def test_one_that_gives_up_at_its_turn_is_in_flight_no_more() -> None:
    async def scenario() -> None:
        queue = queue_of(most_in_flight=1)
        await queue.turn(lambda: 0)
        waiting = asyncio.create_task(queue.turn(lambda: 0))
        await asyncio.sleep(0)
        queue.end()
        # Its turn comes in the next turn of the loop, in which it is told of it no more.
        asyncio.get_running_loop().call_soon(waiting.cancel)
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        async with asyncio.timeout(PATIENCE):
            await queue.turn(lambda: 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(("given", "header"), [("1s", "1"), ("2500ms", "3"), ("1m", "60")])
def test_the_header_of_a_refusal_has_whole_seconds(given: str, header: str) -> None:
    settings = parse_options([f"--webhook-retry-after={given}"], {}).admission_queue
    assert AdmissionQueue(ManualClock(), settings).retry_after == header


@pytest.mark.parametrize(
    "argument",
    ["--webhook-max-requests-inflight=-1", "--webhook-max-requests-waiting=0", "--webhook-retry-after=999ms"],
)
def test_a_flag_that_cannot_be_is_refused_by_name(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options([argument], {})
    name, _, value = argument.partition("=")
    told = capsys.readouterr().err
    assert name in told
    assert value in told


def pod(priority: int | None) -> dict[str, object]:
    return {"metadata": {"name": "p"}, "spec": {"priority": priority, "containers": []}}


def asked(resource: str = "pods", **request: object) -> bytes:
    document = {"request": {"resource": {"group": "", "version": "v1", "resource": resource}, **request}}
    return msgspec.json.encode(document)


@pytest.mark.parametrize(
    ("body", "priority"),
    [
        (asked(object=pod(9000)), 9000),
        (asked(object=pod(-5)), -5),
        (asked(object=None, oldObject=pod(7)), 7),
        (asked(object=pod(None)), 0),
        (review(), 0),
        (asked(subResource="binding", object={"target": {"name": "n"}}), BEFORE_PODS),
        (asked("nodes", object={"metadata": {}}), BEFORE_PODS),
        (b"{", UNREADABLE),
        (b"{}", UNREADABLE),
    ],
)
def test_the_priority_is_that_of_the_pod(body: bytes, priority: int) -> None:
    assert priority_of(body) == priority
