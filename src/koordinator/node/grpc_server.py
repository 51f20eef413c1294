"""A gRPC server for unary calls on a unix socket, the counterpart of ``grpc_client`` and as small as that."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

from hpack import Decoder
from hpack.exceptions import HPACKError

from koordinator.node import grpc_messages, http2
from koordinator.node.grpc_messages import GrpcError, MessageError

logger = logging.getLogger(__name__)

Handler = Callable[[bytes], Awaitable[bytes]]
"""The response to a message; GrpcError for one that fails."""

_LONGEST_MESSAGE: Final = 16 << 20
_MOST_STREAMS: Final = 256
"""Calls at once on one connection."""
_MAX_CONCURRENT_STREAMS: Final = 3
_WINDOW: Final = _LONGEST_MESSAGE + 5
_PREAMBLE: Final = http2.settings(
    (
        (http2.HEADER_TABLE_SIZE, 0),
        (_MAX_CONCURRENT_STREAMS, _MOST_STREAMS),
        (http2.INITIAL_WINDOW_SIZE, _WINDOW),
    )
) + http2.window_update(0, _WINDOW - http2.DEFAULT_WINDOW)


class GrpcServer:
    """Serves the methods of ``handlers``, ``/package.Service/Method`` -> handler, and no others."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._connections: set[_Connection] = set()

    async def run(self, path: str, on_listening: Callable[[], None] = lambda: None) -> None:
        """Serve at a path where there is nothing yet, until cancelled. OSError if the socket cannot be created."""
        async with asyncio.TaskGroup() as tasks:
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(lambda: self._accept(tasks), path)
            try:
                # The clients are root on the node.
                os.chmod(path, 0o600)
                on_listening()
                await asyncio.Event().wait()
            finally:
                server.close()
                for connection in list(self._connections):
                    connection.close()

    def _accept(self, tasks: asyncio.TaskGroup) -> asyncio.Protocol:
        connection = _Connection(self._handlers, tasks, self._connections.discard)
        self._connections.add(connection)
        return connection


class _Stream:
    """One call: what has arrived of it, and how much may be sent."""

    def __init__(self, path: str, window: int) -> None:
        self.path = path
        self.content = bytearray()
        self.window = window
        self.task: asyncio.Task[None] | None = None


class _Connection(asyncio.Protocol):
    """One HTTP/2 connection."""

    def __init__(
        self, handlers: Mapping[str, Handler], tasks: asyncio.TaskGroup, forget: Callable[[_Connection], None]
    ) -> None:
        self._handlers = handlers
        self._tasks = tasks
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._frames = http2.FrameSplitter(preface=True)
        self._decoder = Decoder(max_header_list_size=http2.LONGEST_HEADER_BLOCK)
        self._streams: dict[int, _Stream] = {}
        self._initial_window = self._window = http2.DEFAULT_WINDOW
        self._opened = asyncio.Event()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop do not derive from it.
        self._transport = cast("asyncio.Transport", transport)
        self._write(_PREAMBLE)

    def connection_lost(self, error: Exception | None) -> None:
        self._forget(self)
        for stream in self._streams.values():
            if stream.task is not None:
                stream.task.cancel()
        self._streams.clear()

    def data_received(self, arrived: bytes) -> None:
        try:
            data, frames = self._frames.split(arrived)
            for frame in frames:
                self._on_frame(data, frame)
        except (http2.Http2Error, HPACKError) as error:
            logger.warning("a gRPC client is left: %s", error)
            self.close()

    def _on_frame(self, data: bytes, frame: http2.Frame) -> None:
        if frame.kind == http2.HEADERS:
            self._on_headers(data, frame)
        elif frame.kind == http2.DATA:
            self._on_data(data, frame)
        elif frame.kind == http2.RST_STREAM:
            stream = self._streams.pop(frame.stream, None)
            if stream is not None and stream.task is not None:
                stream.task.cancel()
        elif frame.kind == http2.SETTINGS and not frame.flags & http2.ACK:
            window = dict(http2.parse_settings(data, frame)).get(http2.INITIAL_WINDOW_SIZE, self._initial_window)
            for stream in self._streams.values():
                stream.window += window - self._initial_window
            self._initial_window = window
            self._opened.set()
            self._write(http2.frame(http2.SETTINGS, http2.ACK, 0))
        elif frame.kind == http2.WINDOW_UPDATE:
            self._on_window_update(data, frame)
        elif frame.kind == http2.PING and not frame.flags & http2.ACK:
            self._write(http2.frame(http2.PING, http2.ACK, 0, http2.payload(data, frame)))

    def _on_headers(self, data: bytes, frame: http2.Frame) -> None:
        headers = dict(self._decoder.decode(http2.header_block(data, frame), raw=True))
        stream = self._streams.get(frame.stream)
        if stream is None:
            if len(self._streams) >= _MOST_STREAMS:
                raise http2.Http2Error(f"more than {_MOST_STREAMS} calls at once")
            path = headers.get(b":path", b"").decode("latin-1")
            stream = self._streams[frame.stream] = _Stream(path, self._initial_window)
        if frame.flags & http2.END_STREAM:
            self._start(frame.stream, stream)

    def _on_data(self, data: bytes, frame: http2.Frame) -> None:
        length = http2.payload_length(frame)
        if length:
            self._write(http2.window_update(0, length))
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        stream.content += http2.payload(data, frame)
        if len(stream.content) > _WINDOW:
            raise http2.Http2Error(f"a message of more than {_LONGEST_MESSAGE} bytes")
        if frame.flags & http2.END_STREAM:
            self._start(frame.stream, stream)

    def _on_window_update(self, data: bytes, frame: http2.Frame) -> None:
        increment = http2.window_increment(data, frame)
        if not frame.stream:
            self._window += increment
        elif stream := self._streams.get(frame.stream):
            stream.window += increment
        self._opened.set()

    def _start(self, number: int, stream: _Stream) -> None:
        if stream.task is None:
            stream.task = self._tasks.create_task(self._respond(number, stream), name=f"call {stream.path}")

    async def _respond(self, number: int, stream: _Stream) -> None:
        try:
            response = await self._handled(stream)
        except (GrpcError, MessageError) as error:
            code = error.code if isinstance(error, GrpcError) else grpc_messages.INTERNAL
            text = error.text if isinstance(error, GrpcError) else str(error)
            self._end(number, code, text, has_begun=False)
        except Exception:
            logger.exception("%s failed", stream.path)
            self._end(number, grpc_messages.INTERNAL, "internal error", has_begun=False)
        else:
            headers = http2.literal_headers(((b":status", b"200"), (b"content-type", b"application/grpc")))
            self._write(http2.frame(http2.HEADERS, http2.END_HEADERS, number, headers))
            await self._send(number, stream, grpc_messages.encode_message(response))
            self._end(number, 0, "", has_begun=True)
        finally:
            self._streams.pop(number, None)

    async def _handled(self, stream: _Stream) -> bytes:
        handler = self._handlers.get(stream.path)
        if handler is None:
            raise GrpcError(grpc_messages.UNIMPLEMENTED, f"unknown method {stream.path}")
        return await handler(grpc_messages.decode_message(bytes(stream.content), _LONGEST_MESSAGE))

    async def _send(self, number: int, stream: _Stream, content: bytes) -> None:
        """As the client's windows allow it."""
        while content:
            length = min(self._window, stream.window, len(content))
            if length > 0:
                self._window -= length
                stream.window -= length
                self._write(b"".join(http2.data_frames(number, content[:length], end_stream=False)))
                content = content[length:]
                continue
            self._opened.clear()
            await self._opened.wait()

    def _end(self, number: int, code: int, text: str, *, has_begun: bool) -> None:
        headers = [(b"grpc-status", b"%d" % code)]
        if text:
            headers.append((b"grpc-message", grpc_messages.escape_text(text)))
        if not has_begun:
            headers = [(b":status", b"200"), (b"content-type", b"application/grpc"), *headers]
        flags = http2.END_HEADERS | http2.END_STREAM
        self._write(http2.frame(http2.HEADERS, flags, number, http2.literal_headers(headers)))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
