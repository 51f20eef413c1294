"""Whatever happens to requests and connections, and in whatever order: no response goes astray and no place is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.connector import Connector
from koordinator.kube.errors import TransportError
from koordinator.kube.pool import Connection
from koordinator.kube.pooled_transport import PooledTransport
from koordinator.kube.transport import Endpoint
from tests.examples import examples
from tests.kube.clients import run

_PLACES = 2
_SECONDS = 30.0


class Wire(asyncio.Transport):
    """One connection to a server that responds when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.pending_path: bytes | None = None
        self._closing = False

    def write(self, data: Any) -> None:
        assert self.pending_path is None, "two requests at a time on one connection"
        self.pending_path = bytes(data).split(b" ")[1]

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def lose(self) -> None:
        """The server closes the connection, and here that is seen at once."""
        if not self._closing:
            self._closing = True
            self._connection.connection_lost(None)

    def respond(self, *, last: bool) -> None:
        """Say what was requested; ``last``: and that the connection ends with it."""
        if self.pending_path is None or self._closing:
            return
        body, self.pending_path = self.pending_path, None
        close = b"Connection: close\r\n" if last else b""
        self._connection.data_received(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (close, len(body), body))

    @property
    def _connection(self) -> Connection:
        assert self.connection is not None
        return self.connection


class Play:
    """Requests, connections and time, moved one step at a time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.limits = TimeLimits(self.clock)
        endpoint = Endpoint("http://server")
        self.transport = PooledTransport(endpoint, None, self.clock, self.limits, max_connections=_PLACES)
        self.wires: list[Wire] = []
        self.requests: list[asyncio.Task[str]] = []

    async def connect(self, protocol: Callable[[], asyncio.Protocol]) -> Connection:
        await asyncio.sleep(0)
        wire = Wire()
        wire.connection = cast("Connection", protocol())
        wire.connection.connection_made(wire)
        self.wires.append(wire)
        assert sum(not wire.is_closing() for wire in self.wires) <= _PLACES
        return wire.connection

    async def send(self, path: str, give_up_at: float) -> str:
        """What came of one request: a response has to be its own."""
        try:
            response = await self.transport.request("GET", path, {}, give_up_at=give_up_at)
        except TransportError as error:
            return "timed out" if error.timed_out else "broken off"
        assert response.body == path.encode()
        return "answered"

    async def step(self, action: str, which: int) -> None:
        if action == "request":
            path = f"/{len(self.requests)}"
            self.requests.append(asyncio.create_task(self.send(path, self.clock.monotonic() + _SECONDS)))
        elif action == "turn":
            await asyncio.sleep(0)
        elif action == "advance":
            await self.clock.advance(20)
        elif action == "cancel" and self.requests:
            self.requests[which % len(self.requests)].cancel()
        elif self.wires:
            wire = self.wires[which % len(self.wires)]
            if action == "close":
                wire.lose()
            else:
                wire.respond(last=action == "last answer")

    async def end(self) -> None:
        """Answer until nobody waits any more."""
        while not all(request.done() for request in self.requests):
            for wire in self.wires:
                wire.respond(last=False)
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.transport.close()
        await self.limits.close()


ACTIONS = st.sampled_from(["request", "request", "turn", "turn", "answer", "last answer", "close", "cancel", "advance"])


@settings(deadline=None, max_examples=examples(200))
@example([("request", 0), ("turn", 0), ("turn", 0), ("turn", 0), ("answer", 0), ("cancel", 0), ("request", 0)])
@example([("request", 0), ("turn", 0), ("turn", 0), ("turn", 0), ("cancel", 0), ("answer", 0), ("request", 0)])
@example([*[("request", 0)] * 3, *[("turn", 0)] * 5, ("answer", 0), ("close", 0)])
@given(st.lists(st.tuples(ACTIONS, st.integers(0, 5)), max_size=40))
def test_every_place_is_free_again(steps: list[tuple[str, int]]) -> None:
    async def work() -> list[str]:
        play = Play()
        with patch.object(Connector, "connect", lambda _, protocol: play.connect(protocol)):
            for action, which in steps:
                await play.step(action, which)
            await play.end()
            await asyncio.gather(*play.requests, return_exceptions=True)
            play.requests.clear()
            for _ in range(2 * _PLACES):
                await play.step("request", 0)
            for _ in range(10):
                await play.step("turn", 0)
            assert sum(wire.pending_path is not None and not wire.is_closing() for wire in play.wires) == _PLACES
            await play.end()
            await play.close()
            return [request.result() for request in play.requests]

    assert run(work()) == ["answered"] * 2 * _PLACES
