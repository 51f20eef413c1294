"""Connections that are kept, replaced, shared and lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.errors import FencedError, TransportError
from koordinator.kube.pooled_transport import PooledTransport
from koordinator.kube.transport import Endpoint, Response
from tests.kube.clients import run

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HEADERS = {"Authorization": "Bearer x"}


class RawServer:
    """Plays bytes: one of ``answers`` for each request on any connection, None to close it instead."""

    def __init__(self, *responses: bytes | None) -> None:
        self._responses = list(responses)
        self.requests: list[bytes] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.arrived = asyncio.Event()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                self.arrived.set()
                response = self._responses.pop(0)
                if response is None:
                    break
                writer.write(response)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()
        finally:
            writer.close()


@asynccontextmanager
async def pool_of(
    server: RawServer, *, clock: ManualClock | None = None, connections: int = 4
) -> AsyncIterator[PooledTransport]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    clock = clock or ManualClock()
    limits = TimeLimits(clock)
    endpoint = Endpoint(f"http://127.0.0.1:{port}/base")
    transport = PooledTransport(endpoint, None, clock, limits, max_connections=connections)
    try:
        yield transport
    finally:
        await transport.close()
        await limits.close()
        listening.close()
        await listening.wait_closed()


async def get(transport: PooledTransport, headers: Mapping[str, str] = HEADERS) -> Response:
    return await transport.request("GET", "/version", headers, give_up_at=60)


def test_the_request_on_the_wire() -> None:
    async def work() -> bytes:
        server = RawServer(OK)
        async with pool_of(server) as transport:
            await transport.request("POST", "/a?b=%2F", HEADERS, b"", give_up_at=60)
        return server.requests[0]

    lines = run(work()).split(b"\r\n")
    assert lines[0] == b"POST /base/a?b=%2F HTTP/1.1"
    assert lines[1].startswith(b"Host: 127.0.0.1:")
    assert lines[2:] == [b"Authorization: Bearer x", b"Content-Length: 0", b"", b""]


def test_a_connection_is_kept() -> None:
    async def work() -> int:
        server = RawServer(OK, OK, OK)
        async with pool_of(server) as transport:
            for _ in range(3):
                await get(transport)
        return len(server.connections)

    assert run(work()) == 1


def test_a_connection_that_was_idle_for_long_is_not_trusted() -> None:
    async def work() -> int:
        server, clock = RawServer(OK, OK), ManualClock()
        async with pool_of(server, clock=clock) as transport:
            await get(transport)
            await clock.advance(46)
            await get(transport)
        return len(server.connections)

    assert run(work()) == 2


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    async def work() -> int:
        server = RawServer(OK, OK)
        async with pool_of(server) as transport:
            await get(transport)
            server.connections[0].close()
            await server.connections[0].wait_closed()
            for _ in range(10):
                # Turns in which the client's loop sees the end of the connection.
                await asyncio.sleep(0)
            await get(transport)
        return len(server.connections)

    assert run(work()) == 2


def test_unasked_bytes_end_a_connection() -> None:
    async def work() -> int:
        server = RawServer(OK, OK)
        async with pool_of(server, connections=1) as transport:
            await get(transport)
            server.connections[0].write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            await server.ended.wait()
            assert (await get(transport)).status == 200
        return len(server.connections)

    assert run(work()) == 2


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (None, "GET /version: the server closed the connection without a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "in the middle of its response"),
    ],
)
def test_a_lost_connection_says_what_it_leaves_open(response: bytes | None, message: str) -> None:
    async def work() -> TransportError:
        server = RawServer(response, OK)
        async with pool_of(server, connections=1) as transport, asyncio.TaskGroup() as group:
            requested = group.create_task(failure_of(transport))
            await server.arrived.wait()
            if response is not None:
                await server.connections[0].drain()
                server.connections[0].close()
            error = await requested
            # Its place in the pool is free again.
            assert (await get(transport)).status == 200
        return error

    error = run(work())
    assert message in str(error)
    assert error.maybe_applied


async def failure_of(transport: PooledTransport) -> TransportError:
    with pytest.raises(TransportError) as caught:
        await get(transport)
    return caught.value


def test_the_response_to_a_cancelled_request_is_not_given_to_the_next() -> None:
    async def work() -> bytes:
        server = RawServer(b"HTTP/1.1 200 OK\r\n", OK)
        async with pool_of(server, connections=1) as transport, asyncio.TaskGroup() as group:
            abandoned = group.create_task(get(transport))
            await server.arrived.wait()
            abandoned.cancel()
            return (await get(transport)).body

    assert run(work()) == b"{}"


def test_those_who_wait_are_served_in_turn() -> None:
    async def work() -> list[int]:
        server = RawServer(*[OK] * 20)
        served: list[int] = []

        async def request(number: int) -> None:
            await get(transport)
            served.append(number)

        async with pool_of(server, connections=1) as transport, asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(request(number))
        assert len(server.connections) == 1
        return served

    assert run(work()) == list(range(20))


def test_a_waiter_that_is_cancelled_holds_nobody_up() -> None:
    async def work() -> None:
        server = RawServer(b"", OK)
        async with pool_of(server, connections=1) as transport, asyncio.TaskGroup() as group:
            first = group.create_task(get(transport))
            await server.arrived.wait()
            second, third = group.create_task(get(transport)), group.create_task(get(transport))
            await asyncio.sleep(0)
            second.cancel()
            first.cancel()
            assert (await third).status == 200

    run(work())


def test_a_refused_connection_frees_its_place() -> None:
    async def work() -> None:
        listening = await asyncio.start_server(RawServer().serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        listening.close()
        await listening.wait_closed()
        clock = ManualClock()
        endpoint = Endpoint(f"http://127.0.0.1:{port}")
        transport = PooledTransport(endpoint, None, clock, TimeLimits(clock), max_connections=1)
        for _ in range(2):
            assert not (await failure_of(transport)).maybe_applied
        await transport.close()

    run(work())


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb"])
def test_a_header_cannot_bring_another(value: str) -> None:
    async def work() -> None:
        async with pool_of(RawServer()) as transport:
            with pytest.raises(ValueError, match="line break"):
                await get(transport, {"Authorization": value})

    run(work())


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä"])
def test_targets_have_to_be_encoded(target: str) -> None:
    async def work() -> None:
        async with pool_of(RawServer()) as transport:
            with pytest.raises(ValueError, match="not an encoded request target"):
                await transport.request("GET", target, HEADERS, give_up_at=60)

    run(work())


def test_a_request_without_a_response_ends_in_time_and_frees_its_place() -> None:
    async def work() -> TransportError:
        server, clock = RawServer(b"", OK), ManualClock()
        async with pool_of(server, clock=clock, connections=1) as transport, asyncio.TaskGroup() as group:
            requested = group.create_task(failure_of(transport))
            await server.arrived.wait()
            await clock.advance(61)
            assert (await transport.request("GET", "/version", HEADERS, give_up_at=120)).status == 200
            return await requested

    error = run(work())
    assert str(error) == "GET /version: no response within 60 s"
    assert (error.timed_out, error.maybe_applied) == (True, True)


def test_a_response_in_time_leaves_no_time_limit_behind() -> None:
    async def work() -> int:
        server, clock = RawServer(OK, OK), ManualClock()
        async with pool_of(server, clock=clock) as transport:
            await transport.request("GET", "/version", HEADERS, give_up_at=5)
            await clock.advance(10)
            await get(transport)
        return len(server.connections)

    assert run(work()) == 1


def test_waiting_for_a_connection_ends_in_time() -> None:
    async def work() -> TransportError:
        server, clock = RawServer(b""), ManualClock()
        async with pool_of(server, clock=clock, connections=1) as transport, asyncio.TaskGroup() as group:
            first = group.create_task(transport.request("GET", "/version", HEADERS, give_up_at=1000))
            await server.arrived.wait()
            requested = group.create_task(failure_of(transport))
            await clock.advance(61)
            first.cancel()
            return await requested

    error = run(work())
    assert str(error) == "GET /version: no connection within 60 s"
    assert (error.timed_out, error.maybe_applied) == (True, False)


def test_the_right_to_send_is_requested_when_there_is_a_connection() -> None:
    async def work() -> int:
        server, allowed = RawServer(b"", OK), [True]
        async with pool_of(server, connections=1) as transport, asyncio.TaskGroup() as group:
            first = group.create_task(get(transport))
            await server.arrived.wait()
            waiting = group.create_task(refused(transport, lambda: allowed[0]))
            await asyncio.sleep(0)
            allowed[0] = False
            first.cancel()
            await waiting
            # The connection that it waited for is there for the next.
            assert (await get(transport)).status == 200
        return len(server.requests)

    assert run(work()) == 2


async def refused(transport: PooledTransport, may_send: Callable[[], bool]) -> None:
    with pytest.raises(FencedError, match="GET /version: not sent"):
        await transport.request("GET", "/version", HEADERS, give_up_at=60, may_send=may_send)
