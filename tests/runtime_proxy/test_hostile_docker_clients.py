"""Clients of docker that use HTTP/1.1 in unusual ways, or break it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.protobuf.runtime_hooks_pb2 import PodSandboxHookRequest
from koordinator.runtime_proxy import http_streams
from koordinator.runtime_proxy.checkpoints import CheckpointTable
from tests.runtime_proxy.proxied import run
from tests.runtime_proxy.test_docker import Daemon, raw

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
