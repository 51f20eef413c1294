"""A thread beside the event loop for calls that may take long: they are waited for a while, and then left to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Call(Generic[T]):
    """One call. A future of the standard library does the same, for twice the CPU time, and a start of a pod waits
    for twenty of them."""

    __slots__ = ("_error", "_function", "_on_end", "_result", "_running")

    def __init__(self, function: Callable[[], T], on_end: Callable[[], None] | None = None) -> None:
        """``on_end`` is called when it has ended, where it was made."""
        self._function = function
        self._on_end = on_end
        self._result: T | None = None
        self._error: Exception | None = None
        self._running = Lock()
        """Held until the call has ended."""
        self._running.acquire()

    @property
    def has_ended(self) -> bool:
        return not self._running.locked()

    def run(self) -> None:
        """Make the call; once."""
        try:
            self._result = self._function()
        except BaseException as error:
            # One that is no Exception, such as SystemExit, would end the thread, or what waits for the result.
            self._error = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        finally:
            # The call may be known for long, and what the function holds may be large.
            del self._function
            self._running.release()
            if self._on_end is not None:
                self._on_end()

    def result(self, seconds: float) -> T:
        """What it returns, or raises what it raises; once. UnfinishedCallError if that takes longer, RuntimeError in
        place of what is no Exception."""
        if not self._running.acquire(timeout=seconds):
            raise UnfinishedCallError(self)
        self._running.release()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # else its traceback would refer to a frame that refers to it
        return cast("T", self._result)


class UnfinishedCallError(Exception):
    """The call has not ended."""

    def __init__(self, call: Call[Any]) -> None:
        super().__init__("the call has not ended yet")
        self.call = call


class SideThread:
    """Makes one call after the other. The thread starts with the first of them, and never keeps the process from
    ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[Call[Any]] | None = None
        self._awaited: Call[Any] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a call that ``wait_for`` has made has not ended."""
        return self._awaited is not None and not self._awaited.has_ended

    def call(self, function: Callable[[], T], seconds: float) -> T:
        """What it returns, or raises what it raises. UnfinishedCallError if that takes longer."""
        call = Call(function)
        self._begin(call)
        return call.result(seconds)

    async def wait_for(self, function: Callable[[], T]) -> T:
        """As ``call``, while the event loop goes on. Who is cancelled leaves the call to end."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The loop may have been closed since.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        self._awaited = call = Call(function, wake)
        self._begin(call)
        await ended.wait()
        return call.result(0)

    def _begin(self, call: Call[Any]) -> None:
        if self._work is None:
            self._work = SimpleQueue()
            Thread(target=_run, args=(self._work,), name=self._name, daemon=True).start()
        self._work.put(call)


def _run(work: SimpleQueue[Call[Any]]) -> None:
    while True:
        work.get().run()
