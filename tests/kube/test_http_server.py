"""What the HTTP server gives its clients time for, and what it does when it can take no more."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import pytest
from aiohttp import web

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.base.server_limits import ServerLimits
from koordinator.kube.accepted_connections import listen
from koordinator.kube.http_server import HttpServer
from koordinator.kube.pages import Request, Response
from koordinator.kube.serving import HealthServer
from tests.waiting import PATIENCE, wait_for

SIZE = 32 << 20
HOST = "127.0.0.1"
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
FEW = ServerLimits(connections=2)


Handler = Callable[[bytes], Awaitable[bytes]]
"""From the body of a request to that of its response."""


class Served(Protocol):
    """A server of /healthz and, with the handler, of /page."""

    bound_port: int

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Application:
    """The server of the API and of webhooks, as they make it."""

    def __init__(self, handler: Handler | None, connections: ProgramConnections, limits: ServerLimits) -> None:
        self.bound_port = 0
        self._handler = handler
        self._connections, self._limits = connections, limits
        self._server: HttpServer | None = None

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/healthz", self._health)
        application.router.add_get("/page", self._page)
        runner = web.AppRunner(application)
        await runner.setup()
        listeners = await listen(HOST, 0)
        self.bound_port = int(listeners[0].getsockname()[1])
        pool = self._connections.serve(str(self.bound_port), self._limits)
        self._server = HttpServer(runner, pool, self._connections.clock)
        self._server.start(listeners)

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(2)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _page(self, request: web.Request) -> web.StreamResponse:
        assert self._handler is not None
        return web.Response(body=await self._handler(await request.read()))


def _pages(handler: Handler | None, connections: ProgramConnections, limits: ServerLimits) -> HealthServer:
    server = HealthServer(Metrics(), connections=connections, limits=limits)
    if handler is not None:
        respond = handler

        async def page(request: Request) -> Response:
            return Response(body=await respond(request.body))

        server.add_route("/page", page)
    return server


class Serving:
    """A server with a manual clock, and what it counts."""

    def __init__(self, kind: str, handler: Handler | None, limits: ServerLimits, most_files: int | None) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        connections = ProgramConnections(self.metrics, self.clock, most_files=most_files)
        make = _pages if kind == "pages" else Application
        self.server: Served = make(handler, connections, limits)

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


class Serve:
    """Makes servers of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @asynccontextmanager
    async def __call__(
        self, handler: Handler | None = None, *, limits: ServerLimits | None = None, most_files: int | None = None
    ) -> AsyncIterator[Serving]:
        made = Serving(self.kind, handler, limits or ServerLimits(), most_files)
        await made.server.start()
        try:
            yield made
        finally:
            await made.server.stop()


@pytest.fixture(params=["pages", "application"])
def serving(request: pytest.FixtureRequest) -> Serve:
    """Of the pages of all programs, and of the API and webhooks."""
    return Serve(request.param)


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
    ],
)
def test_a_client_that_goes_no_further_is_left(serving: Serve, said: bytes, seconds: int, reason: str) -> None:
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


@pytest.mark.parametrize(("kind", "seconds", "reason"), [("pages", 10, "header"), ("application", 120, "idle")])
def test_a_client_that_sends_half_of_its_next_request_at_once_is_left(kind: str, seconds: int, reason: str) -> None:
    """The library keeps to itself what it has read beyond a request."""

    async def scenario() -> None:
        async with Serve(kind)() as made:
            reader, writer = await made.send(GET + b"GET")
            await reader.readuntil(b"ok")
            await turns()
            await made.clock.advance(seconds - 1)
            assert made.open == 1
            await made.clock.advance(2)
            await wait_for(lambda: made.closed(reason) == 1)
            writer.close()

    run(scenario)


def test_a_header_of_a_later_request_has_its_time_from_its_first_byte_on(serving: Serve) -> None:
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


async def page(body: bytes) -> bytes:
    return bytes(SIZE)


def test_a_client_that_does_not_read_is_left(serving: Serve) -> None:
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


def test_a_client_that_reads_gets_all_of_it(serving: Serve) -> None:
    async def scenario() -> None:
        async with serving(page) as made:
            reader, writer = await made.send(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            assert len(await reader.readexactly(SIZE)) == SIZE
            writer.close()

    run(scenario)


def test_a_request_in_progress_may_last_and_is_never_closed_for_another(serving: Serve) -> None:
    """Profiles take minutes, watches for ever. Who comes when all are busy is served when one of them is done."""
    done = asyncio.Event()

    async def patient(body: bytes) -> bytes:
        await done.wait()
        return b"done"

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


def test_descriptors_are_left_for_others(serving: Serve) -> None:
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


def test_a_process_without_descriptors_tries_again_and_does_not_spin(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_burst_is_logged_once_with_its_address(serving: Serve, caplog: pytest.LogCaptureFixture) -> None:
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
def test_what_is_not_http_is_refused_without_stack_traces(
    serving: Serve, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(read) as made:
            reader, writer = await made.send(sent)
            assert b" 400 " in await reader.readline()
            writer.close()

    run(scenario)
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_client_that_goes_away_within_its_request_leaves_no_stack_traces(
    serving: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(read) as made:
            _, writer = await made.send(HEAD + b"Content-Length: 10\r\n\r\nhalf")
            await wait_for(lambda: made.open == 1)
            await turns()
            writer.transport.abort()
            await wait_for(lambda: made.open == 0)

    run(scenario)
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_body_that_does_not_come_ends_its_request_on_any_port(serving: Serve) -> None:
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


def test_a_body_that_comes_in_parts_is_waited_for_and_its_handler_as_long_as_it_takes(serving: Serve) -> None:
    has_body, may_go_on = asyncio.Event(), asyncio.Event()

    async def slowly(body: bytes) -> bytes:
        has_body.set()
        await may_go_on.wait()
        return body

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


async def read(body: bytes) -> bytes:
    return body


async def turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)
