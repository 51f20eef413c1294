"""Clients of docker that use HTTP/1.1 in unusual ways, or break it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from koordinator.api.protobuf.runtime_hooks_pb2 import PodSandboxHookRequest
from koordinator.base import http_streams
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.runtime_proxy.checkpoints import CheckpointTable
from tests.runtime_proxy.proxied import run
from tests.runtime_proxy.test_docker import Daemon, in_front_of, raw
from tests.waiting import wait_for

_CREATE = b"POST /v1.41/containers/create?name=k8s_main_web_shop_u-1_2 HTTP/1.1\r\nHost: d\r\n"


def _responding(received: list[bytes]) -> Daemon:
    """Answers each request of a known length with the number of its bytes."""

    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await http_streams.read_head(reader)
        assert head is not None
        body = await http_streams.read_body(head, reader, 1 << 20)
        received.append(body)
        content = b"%d" % len(body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return daemon


def _with_client(scenario: Any, received: list[bytes] | None = None) -> None:
    async def within() -> None:
        async with raw(_responding([] if received is None else received)) as (reader, writer):
            await scenario(reader, writer)

    run(within())


def test_a_client_that_waits_for_continue_gets_it() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_CREATE + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"{}")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(1) == b"2"

    _with_client(scenario)


def test_a_client_that_has_said_all_gets_its_response() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST /v1.41/build HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000))
        writer.write_eof()
        assert (await reader.read()).endswith(b"\r\n\r\n300000")

    _with_client(scenario)


def test_requests_that_come_at_once_are_answered_one_after_the_other() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for length in (3, 0, 5):
            writer.write(b"POST /v1.41/x HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (length, bytes(length)))
        for length in (3, 0, 5):
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(1) == b"%d" % length

    _with_client(scenario)


@pytest.mark.parametrize("path", [b"/v1.41/x", b"/v1.41/containers/create?name=k8s_main_web_shop_u-1_2"])
@pytest.mark.parametrize(
    "rest",
    [
        # Two lengths: what one program takes for the body, another takes for a request.
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length : 5\r\n\r\nhello",
        b"Content-Length: %b\r\n\r\n" % (b"9" * 5000),
        b"Content-Length: -1\r\n\r\n",
    ],
)
def test_a_body_of_which_two_lengths_can_be_read_is_refused(path: bytes, rest: bytes) -> None:
    received: list[bytes] = []

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST " + path + b" HTTP/1.1\r\nHost: d\r\n" + rest)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")

    _with_client(scenario, received)
    assert received == []


@pytest.mark.parametrize(
    "chunks",
    [b"0x1\r\na\r\n0\r\n\r\n", b"1_0\r\n", b"+1\r\na\r\n", b"-1\r\n", b"1\r\nab\r\n", b"0\r\n" + b"T: x\r\n" * 20_000],
)
def test_chunks_that_are_none_close_the_connection(chunks: bytes) -> None:
    async def scenario() -> None:
        reader = asyncio.StreamReader(limit=http_streams.LONGEST_HEAD)
        reader.feed_data(chunks)
        reader.feed_eof()
        head = http_streams.Head("POST / HTTP/1.1", (("Transfer-Encoding", "chunked"),))
        with pytest.raises(http_streams.HttpError, match=r"chunk|trailers"):
            await http_streams.read_body(head, reader, 1 << 20)

    run(scenario())


def test_what_is_no_file_among_the_checkpoints_does_not_stop_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    table = CheckpointTable(tmp_path, PodSandboxHookRequest)
    table.load()
    assert len(table) == 0


class _Docker:
    """The proxy in front of a daemon, with a manual clock."""

    def __init__(self, path: Path, clock: ManualClock, metrics: Metrics) -> None:
        self._path = path
        self._clock = clock
        self._metrics = metrics
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self, said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(str(self._path))
        self.writers.append(writer)
        writer.write(said)
        return reader, writer

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            await self._clock.advance(1)

    @property
    def open(self) -> float:
        labels = {"port": str(self._path)}
        return self._metrics.registry.get_sample_value("koordinator_server_connections", labels) or 0

    def closed(self, reason: str) -> float:
        labels = {"port": str(self._path), "reason": reason}
        return self._metrics.registry.get_sample_value("koordinator_server_closed_connections_total", labels) or 0


def _limited(daemon: Daemon, scenario: Callable[[_Docker], Awaitable[None]]) -> None:
    async def within() -> None:
        clock, metrics = ManualClock(), Metrics()
        async with in_front_of(daemon, ProgramConnections(metrics, clock)) as path:
            docker = _Docker(path, clock, metrics)
            try:
                await scenario(docker)
            finally:
                for writer in docker.writers:
                    writer.transport.abort()

    run(within())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "handshake"),
        (b"GET /info HTTP/1.1\r\nHost: d\r\n", "header"),
        (b"GET /info HTTP/1.1\r\n\r\nG", "header"),
    ],
    ids=["nothing", "half a header", "half of the next"],
)
def test_a_header_that_is_never_complete_closes_its_connection(said: bytes, reason: str) -> None:
    async def scenario(docker: _Docker) -> None:
        reader, _ = await docker.connect(said)
        await wait_for(lambda: docker.open == 1)
        if said.endswith(b"G"):
            assert await reader.readuntil(b"\r\n\r\n0")
        await docker.pass_time(9)
        assert docker.open == 1
        await docker.pass_time(2)
        assert await reader.read() == b""
        assert (docker.open, docker.closed(reason)) == (0, 1)

    _limited(_responding([]), scenario)


def test_a_connection_to_docker_may_be_idle_for_hours() -> None:
    async def scenario(docker: _Docker) -> None:
        reader, writer = await docker.connect(b"")
        for _ in range(2):
            writer.write(b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            assert await reader.readuntil(b"\r\n\r\n2")
            await docker.pass_time(3600)

    _limited(_responding([]), scenario)


@pytest.mark.parametrize("body", [b"Content-Length: 9\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
def test_a_create_whose_body_is_never_complete_fails(body: bytes) -> None:
    received: list[bytes] = []

    async def scenario(docker: _Docker) -> None:
        reader, _ = await docker.connect(_CREATE + body)
        await wait_for(lambda: docker.open == 1)
        await docker.pass_time(29)
        assert docker.open == 1
        await docker.pass_time(2)
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        assert (await reader.read()).endswith(b"the body was not here after 30 s\n")
        assert (docker.open, received) == (0, [])

    _limited(_responding(received), scenario)


def test_a_body_that_only_passes_may_take_hours() -> None:
    """Such as that of an image that is made meanwhile."""

    async def scenario(docker: _Docker) -> None:
        reader, writer = await docker.connect(b"POST /v1.41/build HTTP/1.1\r\nContent-Length: 2\r\n\r\n{")
        await docker.pass_time(7200)
        writer.write(b"}")
        assert await reader.readuntil(b"\r\n\r\n2")

    _limited(_responding([]), scenario)


def test_an_upgraded_stream_may_be_silent_for_hours() -> None:
    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        writer.write(b"heard: " + await reader.readexactly(5))
        writer.close()

    async def scenario(docker: _Docker) -> None:
        reader, writer = await docker.connect(b"POST /v1.41/exec/x/start HTTP/1.1\r\nUpgrade: tcp\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await docker.pass_time(7200)
        writer.write(b"hello")
        assert await reader.read() == b"heard: hello"

    _limited(daemon, scenario)


def test_who_does_not_read_the_last_response_is_left() -> None:
    """Docker has closed its connection; what it said waits at the proxy, and with it the connection of the client."""

    # More than the kernel keeps for a reader, and less than makes the proxy wait for it.
    with socket.socket(socket.AF_UNIX) as any_socket:
        size = any_socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) + 57_000

    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
        writer.write(head + bytes(size))
        await writer.drain()
        writer.close()

    async def scenario(docker: _Docker) -> None:
        _, writer = await docker.connect(b"")
        cast("asyncio.Transport", writer.transport).pause_reading()
        writer.write(b"GET /x HTTP/1.1\r\n\r\n")
        await wait_for(lambda: docker.open == 1)
        await docker.pass_time(29)
        assert docker.open == 1
        await docker.pass_time(3)
        assert (docker.open, docker.closed("response")) == (0, 1)

    _limited(daemon, scenario)
