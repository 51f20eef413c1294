"""Unary calls, against a server made with grpcio."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from koordinator.node import grpc_messages, http2
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.grpc_messages import GrpcError
from tests.runtime_proxy.fake_servers import CallHandler, FakeRuntime, never, serving


@asynccontextmanager
async def connected(response: CallHandler) -> AsyncIterator[GrpcClient]:
    with tempfile.TemporaryDirectory(prefix="grpc") as name:
        path = Path(name) / "server.sock"
        async with serving(FakeRuntime({"Call": response}), path):
            client = GrpcClient(path)
            yield client
            client.close()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


async def echo(message: bytes, context: Any) -> bytes:
    return message


@pytest.mark.parametrize("size", [0, 1, 16379, 16380, 100_000, (16 << 20) - 5])
def test_messages_of_any_size_pass(size: int) -> None:
    async def scenario() -> None:
        async with connected(echo) as client:
            message = bytes(range(256)) * (size // 256) + bytes(size % 256)
            assert await client.unary("/test/Call", message, 15.0) == message

    run(scenario())


def test_calls_share_one_connection() -> None:
    async def scenario() -> None:
        async with connected(echo) as client:
            messages = [b"%d" % number * 1000 for number in range(50)]
            responses = await asyncio.gather(*(client.unary("/test/Call", message, 10.0) for message in messages))
            assert responses == messages

    run(scenario())


def test_a_status_has_its_code_and_its_text() -> None:
    async def refuse(message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "50 % of «pod»\nis gone")
        return b""

    async def scenario() -> None:
        async with connected(refuse) as client:
            with pytest.raises(GrpcError) as failed:
                await client.unary("/test/Call", b"", 10.0)
            assert (failed.value.code, failed.value.text) == (5, "50 % of «pod»\nis gone")
            assert str(failed.value).startswith("rpc error: code = NotFound desc = 50 %")

    run(scenario())


def test_a_server_that_takes_too_long_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def hang(message: bytes, context: Any) -> bytes:
        try:
            await never()
        finally:
            cancelled.set()
        return b""

    async def scenario() -> None:
        async with connected(hang) as client:
            with pytest.raises(GrpcError) as failed:
                await client.unary("/test/Call", b"", 0.05)
            assert failed.value.code == grpc_messages.DEADLINE_EXCEEDED
            await cancelled.wait()

    run(scenario())


def test_a_response_that_is_too_long_is_an_error() -> None:
    async def scenario() -> None:
        async with connected(echo) as client:
            with pytest.raises(GrpcError) as failed:
                await client.unary("/test/Call", bytes((16 << 20) + 1), 10.0)
            assert failed.value.code == grpc_messages.RESOURCE_EXHAUSTED

    run(scenario())


def test_a_server_that_is_not_there_fails_the_call_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(GrpcError) as failed:
            await GrpcClient(tmp_path / "absent").unary("/test/Call", b"", 10.0)
        assert failed.value.code == grpc_messages.UNAVAILABLE
        assert "No such file" in failed.value.text

    run(scenario())


def test_the_connection_is_made_anew_after_the_server_came_back() -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory(prefix="grpc") as name:
            path = Path(name) / "server.sock"
            client = GrpcClient(path)
            for _ in range(2):
                async with serving(FakeRuntime({"Call": echo}), path):
                    assert await client.unary("/test/Call", b"x", 10.0) == b"x"
                with pytest.raises(GrpcError):
                    await client.unary("/test/Call", b"x", 10.0)
            client.close()

    run(scenario())


def test_calls_in_flight_fail_when_the_server_goes() -> None:
    async def hang(message: bytes, context: Any) -> bytes:
        started.set()
        await never()
        return b""

    started = asyncio.Event()

    async def scenario() -> None:
        async with connected(hang) as client:
            task = asyncio.create_task(client.unary("/test/Call", b"", 10.0))
            await started.wait()
            client.close()
            with pytest.raises(GrpcError, match="Unavailable"):
                await task

    run(scenario())


class _LeavingServer:
    """Answers the first call of a connection; the first connection leaves the others to the next one."""

    def __init__(self, goodbye: Callable[[int], bytes]) -> None:
        self._goodbye = goodbye
        self.connections = 0
        self.first_is_over = asyncio.Event()
        self.all_are_over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first = self.connections == 1
        splitter = http2.FrameSplitter(preface=True)
        writer.write(http2.settings(()))
        answered = False
        while arrived := await reader.read(65_536):
            _, frames = splitter.split(arrived)
            for stream in [each.stream for each in frames if each.kind == http2.DATA]:
                writer.write(self._goodbye(stream) if is_first and answered else self._response(stream))
                answered = True
        writer.close()
        await writer.wait_closed()
        (self.first_is_over if is_first else self.all_are_over).set()

    @staticmethod
    def _response(stream: int) -> bytes:
        head = http2.literal_headers(((b":status", b"200"),))
        tail = http2.literal_headers(((b"grpc-status", b"0"),))
        return (
            http2.frame(http2.HEADERS, http2.END_HEADERS, stream, head)
            + http2.frame(http2.DATA, 0, stream, grpc_messages.encode_message(b"answer"))
            + http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, stream, tail)
        )


@pytest.mark.parametrize(
    "goodbye",
    [
        lambda stream: http2.go_away(stream - 2, http2.NO_ERROR),
        lambda stream: http2.go_away(stream - 2, http2.NO_ERROR) + http2.reset(stream, http2.REFUSED_STREAM),
    ],
    ids=["GOAWAY", "GOAWAY and a reset"],
)
def test_a_call_that_the_server_did_not_process_is_made_again(tmp_path: Path, goodbye: Callable[[int], bytes]) -> None:
    async def scenario() -> None:
        leaving = _LeavingServer(goodbye)
        server = await asyncio.start_unix_server(leaving.serve, str(tmp_path / "socket"))
        client = GrpcClient(tmp_path / "socket")
        responses = await asyncio.gather(*(client.unary("/test/Call", b"x", 10.0) for _ in range(3)))
        assert responses == [b"answer"] * 3
        assert leaving.connections == 2
        # The client has left the first connection by itself.
        await leaving.first_is_over.wait()
        client.close()
        await leaving.all_are_over.wait()
        server.close()

    run(scenario())


def test_a_call_is_made_again_only_once(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(http2.settings(()) + http2.go_away(0, http2.NO_ERROR))
        # Up to the end of the connection.
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.release()

    left = asyncio.Semaphore(0)

    async def scenario() -> None:
        server = await asyncio.start_unix_server(refuse, str(tmp_path / "socket"))
        client = GrpcClient(tmp_path / "socket")
        with pytest.raises(GrpcError, match="did not process") as failed:
            await client.unary("/test/Call", b"x", 10.0)
        assert failed.value.code == grpc_messages.UNAVAILABLE
        for _ in range(2):
            await left.acquire()
        server.close()

    run(scenario())


def test_gzip_messages_are_read_and_bombs_are_not() -> None:
    import gzip

    def framed(message: bytes) -> bytes:
        content = gzip.compress(message)
        return b"\1" + len(content).to_bytes(4, "big") + content

    assert grpc_messages.decode_message(framed(b"x" * 100), 100) == b"x" * 100
    with pytest.raises(grpc_messages.MessageError, match="more than 99"):
        grpc_messages.decode_message(framed(b"x" * 100), 99)


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"\0\0\0\0\2x", b"\0\0\0\0\1xy", b"\1\0\0\0\1x"])
def test_what_is_not_one_message_is_refused(content: bytes) -> None:
    with pytest.raises(grpc_messages.MessageError):
        grpc_messages.decode_message(content, 100)
