"""A thread beside the event loop: what its calls may do to it."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from koordinator.base.side_thread import SideThread

WAIT = 10.0
"""Seconds, of which a call that works takes none."""


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError("no")], ids=repr)
def test_a_call_that_would_end_its_thread_fails_alone(raised: BaseException) -> None:
    def leave() -> None:
        raise raised

    thread = SideThread("test")
    with pytest.raises(RuntimeError, match=f"{type(raised).__name__}: {raised}"):
        thread.call(leave, WAIT)
    assert thread.call(lambda: "still there", WAIT) == "still there"


def test_who_waits_for_such_a_call_is_not_cancelled() -> None:
    def leave() -> None:
        raise asyncio.CancelledError("of its own")

    async def scenario() -> None:
        with pytest.raises(RuntimeError, match="CancelledError: of its own"):
            await SideThread("test").wait_for(leave)

    asyncio.run(scenario())


def test_nothing_of_a_call_is_kept_after_its_end() -> None:
    class Function:
        def __call__(self) -> int:
            return 1

    async def scenario() -> None:
        function, thread = Function(), SideThread("test")
        kept = weakref.ref(function)
        assert await thread.wait_for(function) == 1
        assert not thread.is_busy
        del function
        assert kept() is None

    asyncio.run(scenario())
