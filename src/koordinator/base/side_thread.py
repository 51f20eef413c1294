"""A thread beside the event loop for calls that may take long: they are waited for a while, and then left to end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class UnfinishedCallError(Exception):
    """The call has not ended; ``future`` has what comes of it."""

    def __init__(self, future: Future[Any]) -> None:
        super().__init__("the call has not ended yet")
        self.future = future


class SideThread:
    """Makes one call after the other. The thread starts with the first of them, and never keeps the process from
    ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] | None = None

    def call(self, function: Callable[[], T], seconds: float) -> T:
        """What it returns, or raises what it raises. UnfinishedCallError if that takes longer."""
        if self._work is None:
            self._work = SimpleQueue()
            Thread(target=_run, args=(self._work,), name=self._name, daemon=True).start()
        future: Future[T] = Future()
        self._work.put((future, function))
        # What the call raises may be a TimeoutError of its own.
        if not wait((future,), seconds).done:
            raise UnfinishedCallError(future)
        return future.result()


def _run(work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]]) -> None:
    while True:
        future, function = work.get()
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
