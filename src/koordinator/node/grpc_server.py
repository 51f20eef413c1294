"""A gRPC server for unary calls on a unix socket, the counterpart of ``grpc_client`` and as small as that."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, cast

from hpack import Decoder
from hpack.exceptions import HPACKError

from koordinator.base.accepting import Acceptor, attach, dismiss, listen_at, prepare_socket
from koordinator.base.errors import KoordinatorError
from koordinator.base.said_once import SaidOnce
from koordinator.base.served_connections import ProgramConnections, Reason, ServedConnection
from koordinator.base.served_stream import CountedTransport
from koordinator.base.server_limits import SOCKET_LIMITS, ServerLimits
from koordinator.base.time_limits import Limit
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

    def __init__(
        self, handlers: Mapping[str, Handler], connections: ProgramConnections, limits: ServerLimits = SOCKET_LIMITS
    ) -> None:
        self._handlers = handlers
        self._connections = connections
        self._limits = limits
        self.is_listening = False

    async def keep_serving(
        self, path: Path, what: str, retry: float, on_listening: Callable[[], None] = lambda: None
    ) -> None:
        """Serve at a path until cancelled, in place of an earlier run. What prevents it, ``on_listening`` included, is
        said of ``what`` once, and tried again after ``retry`` seconds."""
        said = SaidOnce(logger)

        def listening() -> None:
            on_listening()
            said.end()

        while True:
            try:
                prepare_socket(path)
                await self.run(str(path), listening)
            except* (KoordinatorError, OSError) as errors:
                with said.round():
                    said.say(f"{what} are not served at {path}: {'; '.join(map(_text, errors.exceptions))}")
            await self._connections.clock.sleep(retry)

    async def run(self, path: str, on_listening: Callable[[], None] = lambda: None) -> None:
        """Serve at a path where there is nothing yet, until cancelled. OSError if the socket cannot be created."""
        listener = listen_at(path)
        pool = self._connections.serve(path, self._limits)
        async with asyncio.TaskGroup() as tasks:

            def heard(accepted: socket.socket, served: ServedConnection) -> None:
                protocol = _Connection(self._handlers, tasks, accepted, served)
                tasks.create_task(attach(accepted, served, protocol), name="accept a connection")

            acceptor = Acceptor(pool, heard)
            acceptor.start([listener])
            try:
                on_listening()
                self.is_listening = True
                await asyncio.Event().wait()
            finally:
                self.is_listening = False
                acceptor.stop()
                pool.close_all()
                await pool.time_limits.close()


def _text(error: Exception) -> str:
    return str((isinstance(error, OSError) and error.strerror) or error)


class _Stream:
    """One call: what has arrived of it, and how much may be sent."""

    def __init__(self, path: str, window: int) -> None:
        self.path = path
        self.content = bytearray()
        self.window = window
        self.task: asyncio.Task[None] | None = None
        self.limit: Limit | None = None
        """While the client is waited for."""


class _Connection(asyncio.Protocol):
    """One HTTP/2 connection."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        tasks: asyncio.TaskGroup,
        accepted: socket.socket,
        served: ServedConnection,
    ) -> None:
        self._handlers = handlers
        self._tasks = tasks
        self._accepted = accepted
        self._served = served
        self._transport: CountedTransport | None = None
        self._frames = http2.FrameSplitter(preface=True)
        self._decoder = Decoder(max_header_list_size=http2.LONGEST_HEADER_BLOCK)
        self._streams: dict[int, _Stream] = {}
        self._last_stream = 0
        self._initial_window = self._window = http2.DEFAULT_WINDOW
        self._opened = asyncio.Event()
        self._is_unread = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio.Transport.
        self._transport = CountedTransport(cast("asyncio.Transport", transport))
        if not self._served.is_open:
            self._transport.abort()
            return
        self._served.drop = self._drop
        self._served.progress = self._progress
        self._served.await_header()
        self._write(_PREAMBLE)

    def connection_lost(self, error: Exception | None) -> None:
        self._served.closed()
        for stream in self._streams.values():
            self._give_up(stream)
        self._streams.clear()

    def pause_writing(self) -> None:
        """The client does not read what it is sent: until it does, neither are its requests read."""
        assert self._transport is not None
        self._is_unread = True
        self._transport.pause_reading()
        self._served.deliver(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        assert self._transport is not None
        self._is_unread = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._served.begin()
            self._settle()

    def data_received(self, arrived: bytes) -> None:
        assert self._transport is not None
        self._transport.received += len(arrived)
        try:
            data, frames = self._frames.split(arrived)
            for frame in frames:
                self._on_frame(data, frame)
        except (http2.Http2Error, HPACKError) as error:
            logger.info("a gRPC client is left: %s", error)
            self._served.close(Reason.MALFORMED)
        else:
            self._settle()

    def _on_frame(self, data: bytes, frame: http2.Frame) -> None:
        if frame.kind == http2.HEADERS:
            self._on_headers(data, frame)
        elif frame.kind == http2.DATA:
            self._on_data(data, frame)
        elif frame.kind == http2.RST_STREAM:
            stream = self._streams.pop(frame.stream, None)
            if stream is not None:
                self._give_up(stream)
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
            if frame.stream <= self._last_stream:
                return  # the end of a call that is over
            if len(self._streams) >= _MOST_STREAMS:
                raise http2.Http2Error(f"more than {_MOST_STREAMS} calls at once")
            self._last_stream = frame.stream
            path = headers.get(b":path", b"").decode("latin-1")
            stream = self._streams[frame.stream] = _Stream(path, self._initial_window)
            stream.limit = self._served.limit(partial(self._late, frame.stream), self._served.limits.body)
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
            self._lift(stream)
            stream.task = self._tasks.create_task(self._respond(number, stream), name=f"call {stream.path}")

    def _late(self, number: int) -> None:
        """One call ends; the others of the connection have done nothing wrong."""
        self._served.complain(Reason.CALL)
        text = f"the request was not complete after {self._served.limits.body:g} s"
        self._end(number, grpc_messages.DEADLINE_EXCEEDED, text, has_begun=False)
        self._reset(number, http2.NO_ERROR)

    def _unread(self, number: int) -> None:
        self._served.complain(Reason.CALL)
        self._reset(number, http2.CANCEL)

    def _reset(self, number: int, code: int) -> None:
        self._write(http2.reset(number, code))
        self._give_up(self._streams.pop(number))
        self._settle()

    def _give_up(self, stream: _Stream) -> None:
        self._lift(stream)
        if stream.task is not None:
            stream.task.cancel()

    def _lift(self, stream: _Stream) -> None:
        if stream.limit is not None:
            self._served.lift(stream.limit)
            stream.limit = None

    def _settle(self) -> None:
        if not self._is_unread and self._served.is_open:
            self._served.follow(has_requests=bool(self._streams), is_cut=self._frames.is_cut)

    def _progress(self) -> int | None:
        assert self._transport is not None
        if not all(stream.limit for stream in self._streams.values()):
            return None
        return self._transport.progress(is_its_turn=True)

    def _drop(self) -> None:
        assert self._transport is not None
        # Requests that are on their way may be sent again to another connection.
        dismiss(
            self._accepted, cast("asyncio.Transport", self._transport), http2.go_away(self._last_stream, http2.NO_ERROR)
        )

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
            stream.limit = self._served.limit(partial(self._unread, number), self._served.limits.reading(len(response)))
            await self._send(number, stream, grpc_messages.encode_message(response))
            self._end(number, 0, "", has_begun=True)
        finally:
            self._lift(stream)
            self._streams.pop(number, None)
            self._settle()

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
