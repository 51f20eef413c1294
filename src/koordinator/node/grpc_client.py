"""A gRPC client for unary calls on a unix socket, in a few hundred lines of pure Python.

grpcio costs a program 20 MiB of memory and a call several times the latency, which koord-runtime-proxy, that stands
between kubelet and the container runtime, would add to every pod that starts.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final, cast

from hpack import Decoder
from hpack.exceptions import HPACKError

from koordinator.node import grpc_messages, http2
from koordinator.node.grpc_messages import GrpcError, MessageError

logger = logging.getLogger(__name__)

_WINDOW: Final = (1 << 31) - 1
_REPLENISH: Final = 1 << 20
_LAST_STREAM: Final = (1 << 31) - 1
_HEADERS: Final = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"user-agent", b"koordinator"),
)
_PREAMBLE: Final = (
    http2.PREFACE
    + http2.settings(((http2.HEADER_TABLE_SIZE, 0), (2, 0), (http2.INITIAL_WINDOW_SIZE, _WINDOW)))
    + http2.window_update(0, _WINDOW - http2.DEFAULT_WINDOW)
)


class _NotProcessedError(GrpcError):
    """The server has said that it did nothing for the call, so it may be made again."""

    def __init__(self) -> None:
        super().__init__(grpc_messages.UNAVAILABLE, "the server is leaving, and did not process the call")


class GrpcClient:
    """Calls to the server at one unix socket. It connects when it has to, and again after the connection was lost."""

    def __init__(self, path: Path, *, max_response_bytes: int = 16 << 20) -> None:
        self._path = path
        self._longest = max_response_bytes
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def unary(self, method: str, message: bytes, timeout: float) -> bytes:
        """Call ``/package.Service/Method``; returns the message of its response.

        GrpcError with the server's code, or with UNAVAILABLE, DEADLINE_EXCEEDED and so on as gRPC's own clients say it.
        A server that is not there fails the call at once; a call that a leaving server did not process is made again
        on a new connection, once. ``timeout`` is in seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                try:
                    return await (await self._connected()).call(method, message, timeout)
                except _NotProcessedError:
                    return await (await self._connected()).call(method, message, timeout)
        except TimeoutError as error:
            raise GrpcError(grpc_messages.DEADLINE_EXCEEDED, "context deadline exceeded") from error

    def close(self) -> None:
        """Close the connection; calls in flight fail."""
        if self._connection is not None:
            self._connection.close()

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or not self._connection.is_usable:
                loop = asyncio.get_running_loop()
                try:
                    _, self._connection = await loop.create_unix_connection(
                        lambda: _Connection(self._longest), str(self._path)
                    )
                except OSError as error:
                    text = f"connection error: dial unix {self._path}: {error.strerror or error}"
                    raise GrpcError(grpc_messages.UNAVAILABLE, text) from error
            return self._connection


class _Call:
    """What has arrived for one stream."""

    def __init__(self, window: int) -> None:
        self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.window = window
        self.content = bytearray()
        self.headers: dict[bytes, bytes] = {}

    def fail(self, code: int, text: str) -> None:
        self.fail_with(GrpcError(code, text))

    def fail_with(self, error: GrpcError) -> None:
        if not self.response.done():
            self.response.set_exception(error)

    def finish(self, longest: int) -> None:
        """The stream has ended: its status decides."""
        status = self.headers.get(b"grpc-status")
        if status is None:
            http = self.headers.get(b":status", b"").decode("latin-1")
            self.fail(grpc_messages.UNKNOWN, f"the server did not speak gRPC: HTTP status {http}")
        elif status != b"0":
            code = int(status) if status.isdigit() else grpc_messages.UNKNOWN
            self.fail(code, grpc_messages.unescape_text(self.headers.get(b"grpc-message", b"")))
        elif not self.response.done():
            try:
                self.response.set_result(grpc_messages.decode_message(bytes(self.content), longest))
            except MessageError as error:
                self.fail(grpc_messages.INTERNAL, str(error))


class _Connection(asyncio.Protocol):
    """One HTTP/2 connection."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._transport: asyncio.Transport | None = None
        self._frames = http2.FrameSplitter(preface=False)
        self._decoder = Decoder(max_header_list_size=http2.LONGEST_HEADER_BLOCK)
        self._calls: dict[int, _Call] = {}
        self._next_stream = 1
        self._initial_window = self._window = http2.DEFAULT_WINDOW
        self._received = 0
        self._opened = asyncio.Event()
        self.is_usable = True

    async def call(self, method: str, message: bytes, timeout: float) -> bytes:
        """One call; when it is cancelled, so is its stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        if self._next_stream >= _LAST_STREAM:
            self.is_usable = False
        call = self._calls[stream] = _Call(self._initial_window)
        headers = (*_HEADERS, (b":path", method.encode()), (b"grpc-timeout", b"%dm" % max(1, int(timeout * 1000))))
        # Pseudo-headers come first.
        block = http2.literal_headers(sorted(headers, key=lambda header: not header[0].startswith(b":")))
        self._write(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, block))
        try:
            await self._send(stream, call, grpc_messages.encode_message(message))
            return await call.response
        finally:
            if not call.response.done() or call.response.cancelled():
                self._write(http2.reset(stream, http2.CANCEL))
            self._calls.pop(stream, None)
            self._close_if_left()

    def close(self) -> None:
        """Close the connection; calls in flight fail."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop do not derive from it.
        self._transport = cast("asyncio.Transport", transport)
        self._write(_PREAMBLE)

    def connection_lost(self, error: Exception | None) -> None:
        self._broken(f"connection closed: {error or 'EOF'}")

    def data_received(self, arrived: bytes) -> None:
        try:
            data, frames = self._frames.split(arrived)
            for frame in frames:
                self._on_frame(data, frame)
        except (http2.Http2Error, HPACKError) as error:
            logger.warning("a gRPC server is left: %s", error)
            self._broken(str(error))
            self.close()

    async def _send(self, stream: int, call: _Call, content: bytes) -> None:
        """Send a request as the server's windows allow it."""
        while True:
            length = min(self._window, call.window, len(content))
            if length > 0 or not content:
                self._window -= length
                call.window -= length
                is_all = length == len(content)
                self._write(b"".join(http2.data_frames(stream, content[:length], end_stream=is_all)))
                content = content[length:]
                if is_all:
                    return
            if call.response.done():
                return
            self._opened.clear()
            await self._opened.wait()

    def _on_frame(self, data: bytes, frame: http2.Frame) -> None:
        if frame.kind == http2.DATA:
            self._on_data(data, frame)
        elif frame.kind == http2.HEADERS:
            headers = self._decoder.decode(http2.header_block(data, frame), raw=True)
            if call := self._calls.get(frame.stream):
                call.headers.update(headers)
                if frame.flags & http2.END_STREAM:
                    self._end(call)
        elif frame.kind == http2.RST_STREAM:
            self._on_reset(data, frame)
        elif frame.kind == http2.SETTINGS and not frame.flags & http2.ACK:
            self._on_settings(data, frame)
        elif frame.kind == http2.WINDOW_UPDATE:
            self._on_window_update(data, frame)
        elif frame.kind == http2.PING and not frame.flags & http2.ACK:
            self._write(http2.frame(http2.PING, http2.ACK, 0, http2.payload(data, frame)))
        elif frame.kind == http2.GOAWAY:
            self._on_go_away(http2.last_processed(data, frame))

    def _on_data(self, data: bytes, frame: http2.Frame) -> None:
        self._received += http2.payload_length(frame)
        if self._received >= _REPLENISH:
            self._write(http2.window_update(0, self._received))
            self._received = 0
        call = self._calls.get(frame.stream)
        if call is None:
            return
        call.content += http2.payload(data, frame)
        if len(call.content) > self._longest + 5:
            call.fail(grpc_messages.RESOURCE_EXHAUSTED, f"received message larger than max ({self._longest} bytes)")
            self._write(http2.reset(frame.stream, http2.CANCEL))
            del self._calls[frame.stream]
        elif frame.flags & http2.END_STREAM:
            self._end(call)

    def _on_reset(self, data: bytes, frame: http2.Frame) -> None:
        if call := self._calls.get(frame.stream):
            if http2.reset_code(data, frame) == http2.REFUSED_STREAM:
                call.fail_with(_NotProcessedError())
            else:
                call.fail(grpc_messages.UNAVAILABLE, "the server has reset the stream")
            self._opened.set()

    def _on_go_away(self, last_processed: int) -> None:
        """Calls up to that one go on, and the connection is closed after them."""
        self.is_usable = False
        for stream, call in self._calls.items():
            if stream > last_processed:
                call.fail_with(_NotProcessedError())
        self._opened.set()
        self._close_if_left()

    def _on_settings(self, data: bytes, frame: http2.Frame) -> None:
        values = dict(http2.parse_settings(data, frame))
        window = values.get(http2.INITIAL_WINDOW_SIZE, self._initial_window)
        for call in self._calls.values():
            call.window += window - self._initial_window
        self._initial_window = window
        self._opened.set()
        self._write(http2.frame(http2.SETTINGS, http2.ACK, 0))

    def _on_window_update(self, data: bytes, frame: http2.Frame) -> None:
        increment = http2.window_increment(data, frame)
        if not frame.stream:
            self._window += increment
        elif call := self._calls.get(frame.stream):
            call.window += increment
        self._opened.set()

    def _end(self, call: _Call) -> None:
        call.finish(self._longest)
        self._opened.set()

    def _broken(self, text: str) -> None:
        self.is_usable = False
        for call in self._calls.values():
            call.fail(grpc_messages.UNAVAILABLE, text)
        self._opened.set()

    def _close_if_left(self) -> None:
        if not self.is_usable and not self._calls:
            self.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
