"""What the HTTP server gives its clients time for, and what it does when it can take no more."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections, ServerLimits
from koordinator.kube.serving import HealthServer
from tests.waiting import PATIENCE, wait_for

SIZE = 32 << 20
HOST = "127.0.0.1"
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
FEW = ServerLimits(connections=2)


class Serving:
    """A server with a manual clock, and what it counts."""

    def __init__(self, limits: ServerLimits, most_files: int | None) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        connections = ProgramConnections(self.metrics, self.clock, most_files=most_files)
        self.server = HealthServer(self.metrics, connections=connections, limits=limits)

    def closed(self, reason: str) -> float:
        labels = {"port": str(self.server.bound_port), "reason": reason}
        return self.metrics.registry.get_sample_value("koordinator_server_closed_connections_total", labels) or 0

    @property
    def open(self) -> float:
        labels = {"port": str(self.server.bound_port)}
        return self.metrics.registry.get_sample_value("koordinator_server_connections", labels) or 0

    async def connect(self, **options: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.server.bound_port, **options)

    async def send(self, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect()
        writer.write(text)
        return reader, writer


@asynccontextmanager
async def serving(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None,
    *,
    limits: ServerLimits | None = None,
    most_files: int | None = None,
) -> AsyncIterator[Serving]:
    """With the handler at /page."""
    made = Serving(limits or ServerLimits(), most_files)
    if handler is not None:
        made.server.add_route("/page", handler)
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    asyncio.run(timed())


@pytest.mark.parametrize(
    ("said", "seconds", "reason"),
    [
        (b"", 10, "handshake"),
        (b"GET /healthz", 10, "header"),
        (GET, 120, "idle"),
        (GET + b"GET", 120, "idle"),
    ],
)
def test_a_client_that_goes_no_further_is_left(said: bytes, seconds: int, reason: str) -> None:
    async def scenario() -> None:
        async with serving() as made:
            reader, writer = await made.send(said)
            if said.startswith(GET):
                await reader.readuntil(b"ok")
            await turns()
            await made.clock.advance(seconds - 1)
            assert made.open == 1
            await made.clock.advance(2)
            await wait_for(lambda: made.closed(reason) == 1)
            assert await reader.read() == b""
            writer.close()

    run(scenario)


def test_a_header_of_a_later_request_has_its_time_from_its_first_byte_on() -> None:
    async def scenario() -> None:
        async with serving() as made:
            reader, writer = await made.send(GET)
            await reader.readuntil(b"ok")
            await made.clock.advance(100)
            writer.write(GET[:10])
            await turns()
            await made.clock.advance(9)
            writer.write(GET[10:])
            await reader.readuntil(b"ok")
            writer.write(GET[:10])
            await turns()
            await made.clock.advance(11)
            await wait_for(lambda: made.closed("header") == 1)
            writer.close()

    run(scenario)


async def page(request: web.Request) -> web.StreamResponse:
    return web.Response(body=bytes(SIZE))


def test_a_client_that_does_not_read_is_left() -> None:
    async def scenario() -> None:
        async with serving(page) as made:
            reader, writer = await made.connect(limit=1024)
            writer.write(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await made.clock.advance(61)
            assert made.open == 1
            await made.clock.advance(2)
            assert made.closed("response") == 1
            received = 0
            try:
                while part := await reader.read(1 << 20):
                    received += len(part)
            except ConnectionError:
                pass
            assert received < SIZE
            writer.close()

    run(scenario)


def test_a_client_that_reads_gets_all_of_it() -> None:
    async def scenario() -> None:
        async with serving(page) as made:
            reader, writer = await made.send(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            assert len(await reader.readexactly(SIZE)) == SIZE
            writer.close()

    run(scenario)


def test_a_request_in_progress_may_last_and_is_never_closed_for_another() -> None:
    """Profiles take minutes, watches for ever. Who comes when all are busy is served when one of them is done."""
    done = asyncio.Event()

    async def patient(request: web.Request) -> web.StreamResponse:
        await done.wait()
        return web.Response(text="done")

    async def scenario() -> None:
        async with serving(patient, limits=FEW) as made:
            busy = [await made.send(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n") for _ in range(2)]
            await turns()
            late, writer = await made.send(GET)
            await turns()
            await made.clock.advance(600)
            assert made.open == 2
            assert made.closed("room") == 0
            done.set()
            assert b"ok" in await late.readuntil(b"ok")
            for reader, each in busy:
                assert b"done" in await reader.readuntil(b"done")
                each.close()
            writer.close()

    run(scenario)


def test_descriptors_are_left_for_others() -> None:
    """Whoever uses them: a connection is closed for each that would use one of the last."""

    async def scenario() -> None:
        with socket.socket() as free:
            most = free.fileno() + 8
        async with serving(most_files=most) as made:
            held = [await made.connect() for _ in range(20)]
            await turns()
            reader, writer = await made.send(GET)
            assert b"ok" in await reader.readuntil(b"ok")
            assert made.closed("files") >= 12
            for _, each in [*held, (reader, writer)]:
                each.close()

    run(scenario)


def test_a_process_without_descriptors_tries_again_and_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0
    really = socket.socket.accept

    def accept(listener: socket.socket) -> object:
        nonlocal tried
        tried += 1
        raise OSError(errno.EMFILE, "Too many open files")

    async def scenario() -> None:
        async with serving() as made:
            monkeypatch.setattr(socket.socket, "accept", accept)
            reader, writer = await made.send(GET)
            await turns()
            assert tried == 1
            monkeypatch.setattr(socket.socket, "accept", really)
            await made.clock.advance(2)
            assert b"ok" in await reader.readuntil(b"ok")
            writer.close()

    run(scenario)


def test_a_burst_is_logged_once_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(limits=FEW) as made:
            held = [await made.connect() for _ in range(30)]
            await turns()
            await made.clock.advance(61)
            held += [await made.connect() for _ in range(5)]
            await turns()
            for _, writer in held:
                writer.close()

    with caplog.at_level(logging.WARNING, "koordinator.base.served_connections"):
        run(scenario)
    lines = [record.getMessage() for record in caplog.records if "no room" in record.getMessage()]
    assert len(lines) == 2
    assert f"a connection from {HOST} is closed" in lines[0]
    assert lines[1].endswith("(27 more since the last such line)")


HEAD = b"GET /page HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nA\x00: b\r\n\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n"],
    ids=["header", "body"],
)
def test_what_is_not_http_is_refused_without_stack_traces(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(read) as made:
            reader, writer = await made.send(sent)
            assert b" 400 " in await reader.readline()
            writer.close()

    run(scenario)
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_client_that_goes_away_within_its_request_leaves_no_stack_traces(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(read) as made:
            _, writer = await made.send(HEAD + b"Content-Length: 10\r\n\r\nhalf")
            await wait_for(lambda: made.open == 1)
            await turns()
            writer.transport.abort()
            await wait_for(lambda: made.open == 0)

    run(scenario)
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_body_that_does_not_come_ends_its_request_on_any_port() -> None:
    async def scenario() -> None:
        async with serving(read) as made:
            reader, writer = await made.send(HEAD + b"Content-Length: 10\r\n\r\nhalf")
            await wait_for(lambda: made.open == 1)
            await turns()
            await made.clock.advance(ServerLimits().body - 1)
            assert made.open == 1
            await made.clock.advance(2)
            assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
            await reader.read()
            writer.close()
            await wait_for(lambda: made.open == 0)

    run(scenario)


def test_a_body_that_comes_in_parts_is_waited_for_and_its_handler_as_long_as_it_takes() -> None:
    has_body, may_go_on = asyncio.Event(), asyncio.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        has_body.set()
        await may_go_on.wait()
        return web.Response(body=body)

    async def scenario() -> None:
        async with serving(slowly) as made:
            reader, writer = await made.send(HEAD + b"Content-Length: 8\r\n\r\nhalf")
            await wait_for(lambda: made.open == 1)
            await turns()
            await made.clock.advance(ServerLimits().body - 1)
            writer.write(b"done")
            await has_body.wait()
            await made.clock.advance(1000)
            may_go_on.set()
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            writer.close()

    run(scenario)


async def read(request: web.Request) -> web.StreamResponse:
    return web.Response(body=await request.read())


async def turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)
