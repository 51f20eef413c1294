"""How a test waits: for an object by a watch, and for what this process does by turns of the event loop.

Neither sleeps, so that a test takes as long as what it waits for, and no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.kube.interface import Client

T = TypeVar("T", bound=Object)
R = TypeVar("R")
P = ParamSpec("P")
PATIENCE = 60
"""Seconds after which a test gives up."""


async def once(client: Client, kind: Kind[T], holds: Callable[[T], bool], namespace: str = "", what: str = "so") -> T:
    """The first object for which ``holds``, as soon as there is one."""
    seen: Object | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            page = await client.list(kind, namespace)
            for item in page.items:
                seen = item
                if holds(item):
                    return item
            async for event in client.watch(kind, namespace, resource_version=page.resource_version):
                found: Any = event.object
                if isinstance(found, kind.type) and event.type != "DELETED":
                    seen = found
                    if holds(found):
                        return found
    except TimeoutError:
        raise AssertionError(f"no {kind.name} was {what}; the last one seen: {seen}") from None
    raise AssertionError("the watch ended")


async def wait_for(holds: Callable[[], bool]) -> None:
    """Let the other tasks of this event loop run until it ``holds``."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0)


class InlineExecutor(ThreadPoolExecutor):
    """Does the work of ``asyncio.to_thread`` at once, so that a test knows when it is done."""

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
