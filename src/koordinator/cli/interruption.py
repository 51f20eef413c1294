"""Ctrl-C and its like: the first ends the work in order, the second ends everything at once."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

from koordinator.base.errors import KoordinatorError

T = TypeVar("T")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGHUP comes when the terminal is closed."""


class Interrupted(KoordinatorError):
    """A signal ended the work."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"ended by {number.name}")
        self.exit_status = 128 + number
        """As shells have it: 130 after Ctrl-C."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end as ``asyncio.run`` does; raises KeyboardInterrupt when Ctrl-C came first.

    ``asyncio.run`` handles SIGINT in Python, and does not wake its loop: a signal that arrives between the last look at
    pending signals and the system call in which the loop waits would be handled when the loop wakes for another reason,
    which is the end of the request that Ctrl-C was meant to cut short.
    """
    with asyncio.Runner() as runner:
        return runner.run(_awake_on_signals(work))


async def _awake_on_signals(work: Coroutine[Any, Any, T]) -> T:
    if threading.current_thread() is not threading.main_thread():
        return await work
    loop = asyncio.get_running_loop()
    received, sent = socket.socketpair()
    received.setblocking(False)
    sent.setblocking(False)
    loop.add_reader(received, received.recv, 4096)
    before = signal.set_wakeup_fd(sent.fileno(), warn_on_full_buffer=False)
    try:
        return await work
    finally:
        signal.set_wakeup_fd(before)
        loop.remove_reader(received)
        received.close()
        sent.close()


async def until_interrupted(
    work: Coroutine[Any, Any, T], *, kill: Callable[[], None], on_interrupt: Callable[[], None]
) -> T:
    """Run ``work`` and return its result. Raises Interrupted when a signal came first.

    The first signal calls ``on_interrupt`` and cancels ``work``, which is waited for while it cleans up. One more calls
    ``kill`` and ends this process at once.
    """
    task = asyncio.ensure_future(work)
    seen: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if seen:
            kill()
            _end_process(number)
        seen.append(number)
        on_interrupt()
        task.cancel()

    loop = asyncio.get_running_loop()
    # nohup has SIGHUP ignored, and means it.
    handled = [each for each in _SIGNALS if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]
    for each in handled:
        loop.add_signal_handler(each, on_signal, each)
    try:
        return await task
    except asyncio.CancelledError:
        if seen:
            raise Interrupted(seen[0]) from None
        raise
    finally:
        for each in handled:
            loop.remove_signal_handler(each)


def _end_process(number: signal.Signals) -> NoReturn:
    os._exit(128 + number)
