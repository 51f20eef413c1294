"""A server among hostile clients, with an ordinary one beside them that must be served.

Its clock is a manual one and its bound is small, so that seconds of waiting and thousands of clients cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from koordinator.base.clock import ManualClock
from koordinator.base.server_limits import ServerLimits
from tests.real_world.hostile_clients import Held, HostileClient, Target, connected
from tests.waiting import wait_for

T = TypeVar("T")
LIMITS = ServerLimits(connections=6)
_TURNS = 20
"""Of the event loop, in which what was sent arrives."""
_MOMENT = 0.1
"""Seconds of the machine, after which what has not happened may wait for the clock."""


@dataclass(frozen=True)
class AttackedServer:
    target: Target
    clock: ManualClock
    connections: Callable[[], float]
    """How many are open."""
    is_port: bool = True
    """Its idle connections are closed after a time, and it gets on with each client before the next one comes. Clients
    of a unix socket may be idle for as long as there is room."""


async def outlive(server: AttackedServer, client: HostileClient, others: int = 0) -> None:
    """Ordinary clients are served while hostile ones hold all that they can; and those lose it after a while.

    ``others`` are connections of the test's own, which last.
    """
    held: list[Held] = []
    try:
        regular = await Caller.connect(server.target)
        await regular.call()
        for _ in range(2):
            for _ in range(LIMITS.connections):
                held.append(await _patiently(server, held, client.begin(server.target)))
                if server.is_port:
                    await _turns()
            assert server.connections() <= LIMITS.connections
            await _patiently(server, held, _newcomer(server.target))
        regular.end()
        # The longest that a client may take for anything.
        await _pass(server, held, LIMITS.idle)
        if server.is_port:
            await wait_for(lambda: server.connections() == others)
        for _ in range(LIMITS.connections):
            await _patiently(server, held, _newcomer(server.target))
    finally:
        for each in held:
            each.end()


class Caller:
    """An ordinary client with one connection, which it keeps."""

    def __init__(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._target = target
        self._calls = 0
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, target: Target) -> Caller:
        name = "localhost" if target.tls is not None else None
        plain = connected(target)
        reader, writer = await asyncio.open_connection(sock=plain, ssl=target.tls, server_hostname=name)
        writer.writelines((target.greeting, target.credit))
        return cls(target, reader, writer)

    async def call(self) -> None:
        self._writer.write(self._target.requests(1, first=self._calls))
        self._calls += 1
        await self._target.read_response(self._reader)

    def end(self) -> None:
        self._writer.transport.abort()


async def _newcomer(target: Target) -> None:
    caller = await Caller.connect(target)
    await caller.call()
    caller.end()


async def _patiently(server: AttackedServer, held: list[Held], work: Awaitable[T]) -> T:
    """Done within three seconds of the clock: in the first it is seen which clients hardly move."""
    task = asyncio.ensure_future(work)
    for _ in range(3):
        await _while(lambda: not task.done())
        if not task.done():
            for each in held:
                await each.go_on()
            await _turns()
            await server.clock.advance(1)
    return await task


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _pass(server: AttackedServer, held: list[Held], seconds: float) -> None:
    for _ in range(int(seconds) // 2 + 1):
        await server.clock.advance(2)
        for each in held:
            await each.go_on()
        await asyncio.sleep(0)


async def _while(holds: Callable[[], bool]) -> None:
    """Let everything go on that does not wait for the clock, for a moment at most."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _MOMENT
    while holds() and loop.time() < end:
        await asyncio.sleep(0)
