"""Answers that are read as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.time_limits import TimeLimits
from koordinator.kube.errors import TransportError
from koordinator.kube.pooled_transport import PooledTransport
from koordinator.kube.transport import Endpoint
from tests.kube.clients import run

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Play = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def transport_to(play: Play) -> AsyncIterator[PooledTransport]:
    """A server that reads one request and then does as ``play`` does; it closes at the end of that."""

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            serving.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await play(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    clock = ManualClock()
    limits = TimeLimits(clock)
    transport = PooledTransport(Endpoint(f"http://127.0.0.1:{port}"), None, clock, limits)
    try:
        yield transport
    finally:
        await transport.close()
        await limits.close()
        listening.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await listening.wait_closed()


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def test_what_has_arrived_is_read_before_the_end_has() -> None:
    async def scenario() -> tuple[int, list[bytes]]:
        may_end = asyncio.Event()

        async def play(writer: asyncio.StreamWriter) -> None:
            writer.write(HEAD + chunk(b"one\n"))
            await may_end.wait()
            writer.write(chunk(b"two\n") + b"0\r\n\r\n")
            await writer.drain()

        async with transport_to(play) as transport:
            stream = await transport.stream("GET", "/watch", {})
            read = []
            async for piece in stream.chunks():
                read.append(piece)
                may_end.set()
            return stream.status, read

    assert run(scenario()) == (200, [b"one\n", b"two\n"])


def test_a_stream_that_breaks_off_says_so() -> None:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(b"one\n"))
        await writer.drain()

    async def scenario() -> None:
        async with transport_to(play) as transport:
            stream = await transport.stream("GET", "/watch", {})
            async for _ in stream.chunks():
                pass

    with pytest.raises(TransportError, match="GET /watch: the stream broke off: the server closed the connection in"):
        run(scenario())


def test_a_server_that_hangs_up_at_once_is_an_error() -> None:
    async def play(writer: asyncio.StreamWriter) -> None:
        return

    async def scenario() -> None:
        async with transport_to(play) as transport:
            await transport.stream("GET", "/watch", {})

    with pytest.raises(TransportError, match="GET /watch: the server closed the connection without a response"):
        run(scenario())


def test_aborting_wakes_whoever_reads() -> None:
    async def scenario() -> None:
        async def play(writer: asyncio.StreamWriter) -> None:
            writer.write(HEAD)
            await writer.wait_closed()

        async with transport_to(play) as transport:
            stream = await transport.stream("GET", "/watch", {})
            asyncio.get_running_loop().call_soon(stream.abort)
            async for _ in stream.chunks():
                pass

    with pytest.raises(TransportError, match="it was cut off"):
        run(scenario())


def test_a_failure_is_read_whole() -> None:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 410 Gone\r\nContent-Length: 4\r\n\r\ngone")
        await writer.drain()

    async def scenario() -> tuple[int, bytes]:
        async with transport_to(play) as transport:
            stream = await transport.stream("GET", "/watch", {})
            return stream.status, await stream.read()

    assert run(scenario()) == (410, b"gone")


def test_a_server_that_sends_faster_than_is_read_is_made_to_wait() -> None:
    total = 64 << 20

    async def scenario() -> tuple[bool, int]:
        sent = asyncio.Event()

        async def play(writer: asyncio.StreamWriter) -> None:
            writer.write(HEAD)
            piece = chunk(b"x" * (1 << 20))
            for _ in range(total >> 20):
                writer.write(piece)
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            sent.set()

        async with transport_to(play) as transport:
            stream = await transport.stream("GET", "/watch", {})
            for _ in range(200):
                await asyncio.sleep(0)
            early = sent.is_set()
            read = 0
            async for piece in stream.chunks():
                read += len(piece)
            return early, read

    assert run(scenario()) == (False, total)


def test_the_response_to_a_head_has_no_body() -> None:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        await writer.wait_closed()

    async def scenario() -> tuple[int, bytes]:
        async with transport_to(play) as transport:
            response = await transport.request("HEAD", "/version", {}, give_up_at=60)
            return response.status, response.body

    assert run(scenario()) == (200, b"")
