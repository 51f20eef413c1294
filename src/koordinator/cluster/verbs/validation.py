"""Validation and expressions of others, without holding up the server's loop.

Nearly all validation takes microseconds. Rules and policies in CEL are other people's programs: what takes longer than
a few milliseconds is begun again in a thread. Of those there are few, so that it holds up those alone who also have
long ones, and they pause, since only one thread of Python runs at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from koordinator.api.document import Document
from koordinator.cluster.errors import invalid
from koordinator.cluster.resource import Cause, Resource
from koordinator.model.cel.budget import INLINE, allowance
from koordinator.model.cel.errors import TakesLong

T = TypeVar("T")
_THREADS: Final = 2
_PAUSE_SECONDS: Final = 0.001


class _Threads:
    """Started when they are first needed."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[[], T]) -> T:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_THREADS, "expressions")
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


_THREAD: Final = _Threads()


async def bounded(function: Callable[[], T]) -> T:
    """What a function returns that may evaluate expressions; it is called twice when that takes long."""
    try:
        with allowance(INLINE):
            return function()
    except TakesLong:
        return await _THREAD.run(lambda: _patiently(function))


def _patiently(function: Callable[[], T]) -> T:
    """In a thread, which gives way to the loop as often as the loop would have waited for it."""
    with allowance(INLINE, lambda: time.sleep(_PAUSE_SECONDS)):
        return function()


async def check(
    resource: Resource,
    name: str,
    validate: Callable[[Document, Document | None], list[Cause]],
    obj: Document,
    old: Document | None,
    warnings: list[str],
) -> None:
    """Raises ApiError 422 for what is wrong; what was wrong before is only warned of."""
    causes = await bounded(lambda: validate(obj, old))
    if not causes:
        return
    warnings.extend(text for cause in causes if cause.tolerated and (text := cause.text) not in warnings)
    if refused := [cause for cause in causes if not cause.tolerated]:
        raise invalid(resource, name, refused)
