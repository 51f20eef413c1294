"""The server's own loops: each follows something in the store, and none of them ends the server.

A loop is an asynchronous generator that lists what is in the store, follows its changes, and yields after each piece of
work. It ends when the store closes. Whatever it raises, it is started again, so that it lists anew: at once when
the history went on without it, as every client of a watch does on 410 Gone, and otherwise after a pause that grows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Final

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.storage.interface import Compacted, OutcomeUnknown, WriteFailed

_LOG = logging.getLogger(__name__)
_PAUSES: Final = BackoffPolicy(initial=1.0, maximum=30.0)

LoopBody = Callable[[], AsyncIterator[None]]


@dataclass(slots=True)
class _Loop:
    name: str
    body: LoopBody
    backoff: Backoff
    error: str = ""
    lost: bool = False
    """The last start ended with a history that was gone, before it had done anything."""


class BackgroundLoops:
    """Runs loops side by side until the store closes."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._loops: dict[str, _Loop] = {}
        self._group: asyncio.TaskGroup | None = None

    def add(self, name: str, body: LoopBody) -> None:
        """``name`` is what health checks call it. One that is added while the others run starts at once."""
        loop = self._loops[name] = _Loop(name, body, Backoff(_PAUSES, self._clock, self._random))
        if self._group is not None:
            self._group.create_task(self._keep(loop), name=name)

    @property
    def names(self) -> list[str]:
        return list(self._loops)

    def check(self, name: str) -> str:
        """Why the loop fails at present; empty when it does not."""
        return self._loops[name].error

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for loop in self._loops.values():
                group.create_task(self._keep(loop), name=loop.name)
            self._group = group

    async def _keep(self, loop: _Loop) -> None:
        while True:
            try:
                await self._iterate(loop)
            except Compacted as error:
                _LOG.warning("%s fell behind and lists anew: %s", loop.name, error)
                if loop.lost:
                    await self._clock.sleep(loop.backoff.next())
                loop.lost = True
            except Exception as error:
                self._failed(loop, error)
                await self._clock.sleep(loop.backoff.next())
            else:
                return

    async def _iterate(self, loop: _Loop) -> None:
        iterator = loop.body()
        assert isinstance(iterator, AsyncGenerator)
        async with aclosing(iterator):
            async for _ in iterator:
                loop.backoff.reset()
                loop.lost = False
                if loop.error:
                    _LOG.warning("%s works again", loop.name)
                    loop.error = ""

    def _failed(self, loop: _Loop, error: Exception) -> None:
        if isinstance(error, (WriteFailed, OutcomeUnknown)):
            _LOG.warning("%s waits for the store: %s", loop.name, error)
            return
        if isinstance(error, KoordinatorError):
            _LOG.warning("%s failed and is started again: %s", loop.name, error)
        else:
            _LOG.exception("%s failed and is started again", loop.name, exc_info=error)
        loop.error = f"{type(error).__name__}: {error}"
