"""One network namespace that cannot be read, or only slowly, costs nobody else anything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from koordinator.node.connection_delays import DelaysIn, read_delays
from koordinator.node.errors import Unavailable
from koordinator.node.host import Host
from tests.node.machine import FakeMachine


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """With the processes 1, 2 and 3."""
    machine = FakeMachine(tmp_path)
    for process in (1, 2, 3):
        machine.write(f"/proc/{process}/ns/net", "")
    return machine.host


class Kernel:
    """Answers of one process after the other."""

    def __init__(self, *answers: list[float] | OSError) -> None:
        self._answers = iter(answers)

    def __call__(self, namespace: int, own: int, seconds: float) -> list[float]:
        answer = next(self._answers)
        if isinstance(answer, OSError):
            raise answer
        return answer


def read(host: Host, delays_in: DelaysIn) -> Mapping[int, float] | Unavailable:
    return asyncio.run(read_delays(host, [1, 2, 3, 4], 10.0, delays_in=delays_in))


def test_who_cannot_be_read_does_not_cost_the_others_their_readings(host: Host) -> None:
    assert read(host, Kernel([1.0], TimeoutError("timed out"), [3.0, 5.0])) == {1: 1.0, 3: 4.0}


def test_one_that_cannot_be_read_beside_others_that_send_nothing_is_no_want_of_the_kernel(host: Host) -> None:
    assert read(host, Kernel(TimeoutError("timed out"), [], [])) == {}


@pytest.mark.parametrize(
    ("error", "text"),
    [(TimeoutError("timed out"), "timed out"), (OSError(1, "Operation not permitted"), "Operation not permitted")],
)
def test_where_nobody_can_be_read_it_says_why(host: Host, error: OSError, text: str) -> None:
    found = read(host, Kernel(error, error, error))
    assert isinstance(found, Unavailable)
    assert found.reason == f"sock_diag in the network of a pod: {text}"


def test_a_round_that_is_cancelled_waits_for_no_kernel_and_begins_nothing_more(host: Host) -> None:
    threads: list[threading.Thread] = []
    asked, may_answer = threading.Event(), threading.Event()

    def delays_in(namespace: int, own: int, seconds: float) -> list[float]:
        threads.append(threading.current_thread())
        asked.set()
        assert may_answer.wait(5.0), "the round that was cancelled has waited"
        return []

    async def cancelled() -> None:
        round_ = asyncio.create_task(read_delays(host, [1, 2], 10.0, delays_in=delays_in))
        await asyncio.to_thread(asked.wait)
        round_.cancel()
        with pytest.raises(asyncio.CancelledError):
            await round_
        assert threads[0].is_alive()
        may_answer.set()

    asyncio.run(cancelled())
    threads[0].join()
    assert len(threads) == 1
