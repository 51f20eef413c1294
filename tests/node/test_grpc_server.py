"""Clients of a gRPC server on a unix socket that have a fault: it costs nobody else anything."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.base.server_limits import SOCKET_LIMITS, ServerLimits
from koordinator.node import http2
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.grpc_messages import encode_message
from koordinator.node.grpc_server import GrpcServer
from tests.real_world.attacked_server import LIMITS, AttackedServer, outlive
from tests.real_world.hostile_clients import HOSTILE_CLIENTS, GrpcTarget, HostileClient
from tests.waiting import PATIENCE, wait_for

ECHO = "/test.Service/Echo"
LARGE = "/test.Service/Large"
"""A response that is larger than the window of a client that says nothing of it."""
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""Programs run on uvloop, tests mostly on asyncio's own loop."""
FEW = replace(SOCKET_LIMITS, connections=2)
DEADLINE_EXCEEDED = b"grpc-status\x014"


class Serving:
    """A server with a manual clock, and what it counts."""

    def __init__(self, path: str, clock: ManualClock, metrics: Metrics) -> None:
        self.path = path
        self.clock = clock
        self.metrics = metrics
        self.target = GrpcTarget(path, 0, b"ordinary", method=ECHO)
        self.writers: list[asyncio.StreamWriter] = []

    @property
    def open(self) -> float:
        labels = {"port": self.path}
        return self.metrics.registry.get_sample_value("koordinator_server_connections", labels) or 0

    def closed(self, reason: str) -> float:
        labels = {"port": self.path, "reason": reason}
        return self.metrics.registry.get_sample_value("koordinator_server_closed_connections_total", labels) or 0

    async def connect(self, said: bytes = b"", *, greeting: bool = True) -> Peer:
        reader, writer = await asyncio.open_unix_connection(self.path)
        self.writers.append(writer)
        writer.write((self.target.greeting if greeting else b"") + said)
        return Peer(reader, writer)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            await self.clock.advance(1)


class Peer:
    """A client by bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._splitter = http2.FrameSplitter(preface=False)
        self.frames: list[tuple[int, int, bytes]] = []

    async def until(self, kind: int, stream: int = 0) -> bytes:
        """The content of the next frame of a kind, on a stream."""
        while True:
            for number, (found, on, content) in enumerate(self.frames):
                if (found, on) == (kind, stream):
                    del self.frames[: number + 1]
                    return content
            arrived = await self.reader.read(1 << 16)
            assert arrived, f"the connection has ended without a frame of the kind {kind}"
            data, frames = self._splitter.split(arrived)
            self.frames += [(each.kind, each.stream, data[each.start + 9 : each.end]) for each in frames]

    async def ended(self) -> None:
        while await self.reader.read(1 << 16):
            pass


@asynccontextmanager
async def serving(
    limits: ServerLimits = SOCKET_LIMITS,
    *,
    most_files: int | None = None,
    wait: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> AsyncIterator[Serving]:
    async def echo(message: bytes) -> bytes:
        if wait is not None:
            await wait()
        return message

    async def large(message: bytes) -> bytes:
        return bytes(100_000)

    clock, metrics = ManualClock(), Metrics()
    connections = ProgramConnections(metrics, clock, most_files=most_files)
    with tempfile.TemporaryDirectory(prefix="gs") as folder:
        path, ready = f"{folder}/s", asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            server = GrpcServer({ECHO: echo, LARGE: large}, connections, limits)
            task = tasks.create_task(server.run(path, ready.set))
            await ready.wait()
            made = Serving(path, clock, metrics)
            try:
                yield made
            finally:
                task.cancel()
                for writer in made.writers:
                    writer.transport.abort()


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    async def timed(scenario: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario

    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield lambda scenario: runner.run(timed(scenario))


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.parametrize("client", HOSTILE_CLIENTS, ids=str)
def test_ordinary_clients_are_served_beside(client: HostileClient, run: Run) -> None:
    async def scenario() -> None:
        async with serving(replace(SOCKET_LIMITS, connections=LIMITS.connections)) as server:
            target = replace(server.target, method=LARGE)
            await outlive(AttackedServer(target, server.clock, lambda: server.open, is_port=False), client)

    run(scenario())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "handshake"),
        (http2.PREFACE[:10], "header"),
        (http2.PREFACE, "header"),
        (http2.PREFACE + http2.settings(((4, 5),))[:-1], "header"),
        # After a first frame: no call is in progress, and another frame has begun.
        (
            http2.PREFACE + http2.settings(()) + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"x" * 50)[:40],
            "header",
        ),
    ],
    ids=["nothing", "half a preface", "no first frame", "half a first frame", "half a header"],
)
def test_who_does_not_say_who_they_are_is_left(said: bytes, reason: str, run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            peer = await server.connect(said, greeting=False)
            await wait_for(lambda: server.open == 1)
            if said:
                await peer.until(http2.SETTINGS)
            await server.pass_time(9)
            assert server.open == 1
            await server.pass_time(2)
            await peer.ended()
            assert (server.open, server.closed(reason)) == (0, 1)

    run(scenario())


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, b"12345")]
)
def test_what_is_not_http2_ends_its_connection_at_once(said: bytes, run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            peer = await server.connect(said, greeting=False)
            await peer.ended()
            assert (server.open, server.closed("malformed")) == (0, 1)

    run(scenario())


def test_a_connection_may_be_idle_for_ever(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            fresh, used = await server.connect(), await server.connect(server.target.requests(1))
            await used.until(http2.DATA, 1)
            await fresh.until(http2.SETTINGS)
            await server.clock.advance(600)
            for number, peer in ((1, used), (0, fresh)):
                peer.writer.write(server.target.requests(1, first=number))
                assert (await peer.until(http2.DATA, 2 * number + 1))[5:] == b"ordinary"

    run(scenario())


def test_the_connection_that_was_idle_longest_makes_room_and_is_told_what_was_processed(run: Run) -> None:
    async def scenario() -> None:
        async with serving(FEW) as server:
            kubelet = await server.connect(server.target.requests(1))
            await kubelet.until(http2.DATA, 1)
            leaked = await server.connect(server.target.requests(2))
            await leaked.until(http2.DATA, 3)
            kubelet.writer.write(server.target.requests(1, first=1))
            await kubelet.until(http2.DATA, 3)
            newcomer = await server.connect(server.target.requests(1))
            await newcomer.until(http2.DATA, 1)
            assert await leaked.until(http2.GOAWAY) == (3).to_bytes(4, "big") + bytes(4)
            await leaked.ended()
            kubelet.writer.write(server.target.requests(1, first=2))
            await kubelet.until(http2.DATA, 5)
            assert (server.open, server.closed("room")) == (2, 1)

    run(scenario())


def test_idle_connections_give_their_descriptors_back_when_the_process_has_few(run: Run) -> None:
    async def scenario() -> None:
        probe = os.open("/dev/null", os.O_RDONLY)
        os.close(probe)
        # The test has the clients' ends, too.
        async with serving(most_files=probe + 20) as server:
            leaked = []
            for _ in range(30):
                leaked.append(await server.connect())
                newcomer = await server.connect(server.target.requests(1))
                await newcomer.until(http2.DATA, 1)
                newcomer.writer.close()
            assert server.closed("files") > 0

    run(scenario())


@pytest.mark.parametrize("half", ["half_body", "half_request"])
def test_a_call_that_is_never_complete_fails_alone(half: str, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            asked.set()
            await may_answer.wait()

        async with serving(wait=wait) as server:
            peer = await server.connect()
            # The third call is complete, and its handler takes long.
            third = server.target.requests(1, first=2)
            said = {"half_body": server.target.half_body + third, "half_request": third + _renumbered(server.target)}
            peer.writer.write(said[half])
            await asked.wait()
            number = {"half_body": 1, "half_request": 7}[half]
            await server.pass_time(29)
            assert (server.open, peer.frames) == (1, [])
            await server.pass_time(2)
            assert DEADLINE_EXCEEDED in await peer.until(http2.HEADERS, number)
            assert await peer.until(http2.RST_STREAM, number) == bytes(4)
            may_answer.set()
            assert (await peer.until(http2.DATA, 5))[5:] == b"ordinary"

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert f"a connection from process {os.getpid()} has lost a call: no complete request in time" in caplog.text


def _renumbered(target: GrpcTarget) -> bytes:
    return target.requests(1, first=3)[:-1]


def test_the_late_rest_of_a_call_that_has_failed_is_ignored(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            peer = await server.connect(server.target.half_body)
            await peer.until(http2.WINDOW_UPDATE)
            await server.pass_time(31)
            await peer.until(http2.RST_STREAM, 1)
            trailers = http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 1, http2.literal_headers(()))
            peer.writer.write(http2.frame(http2.DATA, 0, 1, b"rest") + trailers + server.target.requests(1, first=1))
            assert (await peer.until(http2.DATA, 3))[5:] == b"ordinary"
            assert all(stream != 1 for kind, stream, _ in peer.frames if kind == http2.HEADERS)

    run(scenario())


def test_a_response_for_which_the_client_opens_no_window_is_given_up(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            peer = await server.connect(replace(server.target, method=LARGE).requests(1))
            await peer.until(http2.DATA, 1)
            await server.pass_time(32)
            assert await peer.until(http2.RST_STREAM, 1) == (http2.CANCEL).to_bytes(4, "big")
            # The connection is of use: its window can be opened again.
            peer.writer.write(http2.window_update(0, 1 << 20) + server.target.requests(1, first=1))
            assert (await peer.until(http2.DATA, 3))[5:] == b"ordinary"

    run(scenario())


def test_the_requests_of_a_client_that_reads_nothing_are_not_read_either(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            message = encode_message(bytes(1 << 20))
            large = http2.settings(((http2.INITIAL_WINDOW_SIZE, 1 << 30),)) + http2.window_update(0, 1 << 30)
            peer = await server.connect(large)
            await peer.until(http2.SETTINGS)
            cast("asyncio.Transport", peer.writer.transport).pause_reading()
            for number in range(1, 129, 2):
                peer.writer.write(_call(number, message))
            await server.pass_time(29)
            unread = peer.writer.transport.get_write_buffer_size()
            assert unread > 40 << 20
            assert server.open == 1
            await server.pass_time(7)
            assert (server.open, server.closed("response")) == (0, 1)

    run(scenario())


def _call(number: int, content: bytes) -> bytes:
    block = http2.literal_headers(((b":method", b"POST"), (b":path", ECHO.encode())))
    head = http2.frame(http2.HEADERS, http2.END_HEADERS, number, block)
    return head + b"".join(http2.data_frames(number, content, end_stream=True))


def test_our_own_client_is_served_after_hundreds_of_leaked_connections(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            for _ in range(SOCKET_LIMITS.connections + 100):
                await server.connect()
            client = GrpcClient(Path(server.path))
            assert await client.unary(ECHO, b"kubelet", 20) == b"kubelet"
            client.close()
            assert server.open <= SOCKET_LIMITS.connections

    run(scenario())
