"""One connection of a client, usually kubelet, and the connection to the container runtime that belongs to it.

Frames pass as they are, so whatever HTTP/2 and gRPC can do (any method, metadata, deadlines, streams, trailers with
details of a status, pings, windows) works through the relay as it works without. It looks into the header blocks of
requests for their paths, and takes the requests of a few methods out of the stream to let hooks change them.

Two things make that possible. The stream of an intercepted call is opened at the runtime at once, only its DATA waits:
the compression of headers is stateful, so their blocks cannot be held back. And the relay announces a header table of
size 0 to the runtime, so that the end of a response can wait for a hook, and the relay can respond to a call by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from hpack import Decoder
from hpack.exceptions import HPACKError

from koordinator.base.served_connections import Reason, ServedConnection
from koordinator.base.served_stream import CountedTransport
from koordinator.node import grpc_messages, http2
from koordinator.runtime_proxy.buffer_budget import BufferBudget
from koordinator.runtime_proxy.flow_control import RuntimeWindows
from koordinator.runtime_proxy.intercepted_call import LONGEST_MESSAGE, InterceptedCall, Interceptor

logger = logging.getLogger(__name__)

_REMEMBERED_REJECTIONS: Final = 1000
_DROP: Final = b""
_MOST_UNREAD: Final = 1 << 20
"""Bytes that may wait for a client that does not read. The runtime is not read for it above a quarter of that, so only
the responses of the relay itself to the client's frames can get there."""
_TOO_MUCH: Final = "koord-runtime-proxy: the requests in hand are too large together; try again"
_TOO_LONG: Final = f"koord-runtime-proxy: received message larger than max ({LONGEST_MESSAGE} bytes)"


class Relay:
    """What arrives on either connection goes into ``from_client`` and ``from_runtime``."""

    def __init__(
        self,
        client: asyncio.WriteTransport,
        runtime: asyncio.WriteTransport,
        interceptor: Interceptor,
        tasks: asyncio.TaskGroup,
        on_end: Callable[[], None],
        budget: BufferBudget,
        served: ServedConnection,
    ) -> None:
        """``tasks`` outlives the relay: hooks after a call run on when its connection is gone. ``on_end`` is called
        when both connections are to be closed: after ``drain`` when no stream is open any more, or when a peer has
        broken the rules. ``budget`` bounds the requests that wait in all relays. ``served`` is the client's
        connection."""
        self._client, self._runtime = CountedTransport(client), runtime
        self._interceptor = interceptor
        self._tasks = tasks
        self._on_end = on_end
        self._budget = budget
        self._served = served
        served.progress = self._progress
        self._client_frames = http2.FrameSplitter(preface=True)
        self._runtime_frames = http2.FrameSplitter(preface=False)
        self._windows = RuntimeWindows()
        self._headers = Decoder(max_header_list_size=http2.LONGEST_HEADER_BLOCK)
        self._response_headers = Decoder(max_header_list_size=http2.LONGEST_HEADER_BLOCK)
        self._compression_agreed = False
        self._calls: dict[int, InterceptedCall] = {}
        self._rejected: dict[int, None] = {}
        self._open: dict[int, bool] = {}
        """Streams; whether their requests have come completely."""
        self._last_stream = 0
        self._draining = False
        self._is_over = False

    # What the two connections call.

    def from_client(self, arrived: bytes) -> None:
        """Bytes of the client."""
        self._client.received += len(arrived)
        self._pass_on(arrived, self._client_frames, self._client_frame, self._runtime)
        self._settle()

    def from_runtime(self, arrived: bytes) -> None:
        """Bytes of the runtime."""
        self._pass_on(arrived, self._runtime_frames, self._runtime_frame, self._client)
        self._settle()
        if self._draining and self.is_idle:
            self._on_end()

    def drain(self) -> None:
        """Send GOAWAY to the client: no more streams are opened; those that are open continue."""
        self._draining = True
        self._client.write(self.farewell())

    def farewell(self) -> bytes:
        """Tells the client that its requests from here on, though they may be on their way, are processed by nobody."""
        return http2.go_away(self._last_stream, http2.NO_ERROR)

    @property
    def is_idle(self) -> bool:
        """Whether no stream is open."""
        return not self._open and not self._calls

    def lost(self) -> None:
        """One of the connections is gone, so the other is closed when it has got what was written to it.

        What the runtime has responded belongs to the client, although the hooks after the call are not yet done.
        """
        self._is_over = True
        for call in self._calls.values():
            self._client.write(b"".join(call.held))
        self._client.close()
        self._runtime.close()
        for stream in list(self._calls):
            self._abandon(stream)
        self._open.clear()

    # What intercepted calls use (``CallStream``).

    def forward(self, stream: int, content: bytes) -> None:
        if stream in self._calls:
            self._windows.send(stream, content)
            self._send_waiting()
            self._give_credit(all_of_it=True)

    def reject(self, stream: int, code: int, text: str) -> None:
        if self._end_call(stream) is None:
            return
        block = http2.literal_headers(
            (
                (b":status", b"200"),
                (b"content-type", b"application/grpc"),
                (b"grpc-status", b"%d" % code),
                (b"grpc-message", grpc_messages.escape_text(text)),
            )
        )
        self._client.write(http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, stream, block))
        self._runtime.write(http2.reset(stream, http2.CANCEL))
        self._forget(stream)
        self._rejected[stream] = None
        if len(self._rejected) > _REMEMBERED_REJECTIONS:
            del self._rejected[next(iter(self._rejected))]

    def release(self, stream: int) -> None:
        if (call := self._end_call(stream)) is not None:
            self._client.write(b"".join(call.held))
            self._forget(stream)

    # Frames.

    def _pass_on(
        self,
        arrived: bytes,
        splitter: http2.FrameSplitter,
        replacement: Callable[[bytes, http2.Frame], bytes | None],
        to: asyncio.WriteTransport | CountedTransport,
    ) -> None:
        """Send on what arrived, with a replacement for some of its frames; None leaves a frame as it is."""
        try:
            data, frames = splitter.split(arrived)
            parts: list[bytes] = []
            passed = 0
            for frame in frames:
                instead = replacement(data, frame)
                if instead is not None:
                    parts += (data[passed : frame.start], instead)
                    passed = frame.end
        except (http2.Http2Error, HPACKError) as error:
            self._break(error)
            return
        if self._client.get_write_buffer_size() > _MOST_UNREAD:
            self._break(http2.Http2Error("the client sends, but does not read the responses"))
            return
        rest = data[passed:] if passed else data
        to.write(b"".join((*parts, rest)) if parts else rest)

    def _client_frame(self, data: bytes, frame: http2.Frame) -> bytes | None:
        kind = frame.kind
        if kind == http2.DATA:
            return self._request_data(data, frame)
        if kind == http2.HEADERS:
            return self._request_headers(data, frame)
        if kind == http2.RST_STREAM:
            return self._reset_by_client(frame.stream)
        if kind == http2.SETTINGS and not frame.flags & http2.ACK:
            return self._client_settings(data, frame)
        if kind == http2.WINDOW_UPDATE and frame.stream > self._last_stream:
            # The runtime would end the connection: to it, the stream that was dropped is idle.
            return _DROP
        return None

    def _request_headers(self, data: bytes, frame: http2.Frame) -> bytes | None:
        headers = dict(self._headers.decode(http2.header_block(data, frame), raw=True))
        stream = frame.stream
        if stream <= self._last_stream:
            # Its block could not wait for what is held back of the request.
            raise http2.Http2Error("a request with trailers, which gRPC does not have")
        if self._draining:
            return _DROP
        self._last_stream = stream
        self._open[stream] = bool(frame.flags & http2.END_STREAM)
        if frame.flags & http2.END_STREAM:
            return None
        handler = self._interceptor.handler(headers.get(b":path", b"").decode("latin-1"))
        if handler is not None:
            limit = self._served.limit(partial(self._late, stream), self._served.limits.body)
            self._calls[stream] = InterceptedCall(stream, handler, self, limit)
            self._windows.open(stream)
        return None

    def _request_data(self, data: bytes, frame: http2.Frame) -> bytes | None:
        stream = frame.stream
        if stream > self._last_stream:
            # It came while the relay drains, or is an error that the runtime never gets to see.
            return _DROP
        if frame.flags & http2.END_STREAM and stream in self._open:
            self._open[stream] = True
        call = self._calls.get(stream)
        length = http2.payload_length(frame)
        if call is None and stream not in self._rejected:
            return None if self._windows.pass_on(length) else self._delay(data, frame)
        self._windows.take(length)
        if call is not None:
            self._collect(call, data, frame)
        self._give_credit(all_of_it=call is None)
        return _DROP

    def _collect(self, call: InterceptedCall, data: bytes, frame: http2.Frame) -> None:
        if call.is_complete:
            raise http2.Http2Error("DATA after the end of its stream")
        content = http2.payload(data, frame)
        if not self._budget.take(len(content)):
            logger.warning("a call is refused: the requests in hand have %d bytes", self._budget.used)
            self.reject(frame.stream, grpc_messages.RESOURCE_EXHAUSTED, _TOO_MUCH)
            return
        call.buffered += len(content)
        if not call.add_request(content):
            self.reject(frame.stream, grpc_messages.RESOURCE_EXHAUSTED, _TOO_LONG)
        elif frame.flags & http2.END_STREAM:
            self._served.lift(call.limit)
            call.start(self._tasks)
        elif length := http2.payload_length(frame):
            self._client.write(http2.window_update(frame.stream, length))

    def _delay(self, data: bytes, frame: http2.Frame) -> bytes:
        content = http2.payload(data, frame)
        self._windows.take(http2.payload_length(frame) - len(content))
        self._windows.delay(frame.stream, content, end_stream=bool(frame.flags & http2.END_STREAM))
        return _DROP

    def _reset_by_client(self, stream: int) -> bytes | None:
        self._abandon(stream)
        self._forget(stream)
        return _DROP if stream in self._rejected or stream > self._last_stream else None

    def _client_settings(self, data: bytes, frame: http2.Frame) -> bytes:
        values = dict(http2.parse_settings(data, frame))
        if http2.MAX_FRAME_SIZE in values:
            values[http2.MAX_FRAME_SIZE] = http2.LONGEST_FRAME
        if not self._compression_agreed or http2.HEADER_TABLE_SIZE in values:
            values[http2.HEADER_TABLE_SIZE] = 0
            self._compression_agreed = True
        return http2.settings(values.items())

    def _runtime_frame(self, data: bytes, frame: http2.Frame) -> bytes | None:
        kind = frame.kind
        if kind == http2.WINDOW_UPDATE:
            return self._window_update(data, frame)
        if kind == http2.SETTINGS:
            return None if frame.flags & http2.ACK else self._runtime_settings(data, frame)
        if kind == http2.GOAWAY:
            self._not_processed(http2.last_processed(data, frame))
        if kind not in (http2.DATA, http2.HEADERS, http2.RST_STREAM):
            return None
        stream = frame.stream
        if stream in self._rejected:
            if kind == http2.DATA and (length := http2.payload_length(frame)):
                self._runtime.write(http2.window_update(0, length))
            return _DROP
        is_end = kind == http2.RST_STREAM or frame.flags & http2.END_STREAM
        call = self._calls.get(stream)
        if call is not None:
            return self._on_response_data(call, data, frame, is_end=bool(is_end))
        if is_end:
            self._open.pop(stream, None)
        return None

    def _not_processed(self, last: int) -> None:
        """The runtime leaves, and ignores the streams after the last; the client makes their calls again elsewhere."""
        for stream in [stream for stream in self._open if stream > last]:
            self._abandon(stream)
            self._forget(stream)

    def _on_response_data(
        self, call: InterceptedCall, data: bytes, frame: http2.Frame, *, is_end: bool
    ) -> bytes | None:
        """A frame of the response of an intercepted call; the one that ends it waits until the call releases it."""
        if not call.is_forwarded:
            # The runtime does not need the request for its response: it may not know the method.
            if is_end:
                self._abandon(frame.stream)
                self._forget(frame.stream)
            return None
        if frame.kind == http2.DATA:
            call.add_response(http2.payload(data, frame))
        if call.held:
            call.held.append(data[frame.start : frame.end])
            return _DROP
        if not is_end:
            return None
        call.held.append(data[frame.start : frame.end])
        call.responded(success=frame.kind == http2.HEADERS and self._is_success(data, frame))
        return _DROP

    def _is_success(self, data: bytes, frame: http2.Frame) -> bool:
        trailers = dict(self._response_headers.decode(http2.header_block(data, frame), raw=True))
        return trailers.get(b"grpc-status") == b"0"

    def _window_update(self, data: bytes, frame: http2.Frame) -> bytes | None:
        increment = http2.window_increment(data, frame)
        if frame.stream:
            if not self._windows.update_stream(frame.stream, increment):
                return None
            self._send_waiting()
            return _DROP
        allowed = self._windows.update_connection(increment)
        self._send_waiting()
        if allowed == increment:
            return None
        return http2.window_update(0, allowed) if allowed else _DROP

    def _runtime_settings(self, data: bytes, frame: http2.Frame) -> bytes:
        values = dict(http2.parse_settings(data, frame))
        if http2.MAX_FRAME_SIZE in values:
            values[http2.MAX_FRAME_SIZE] = http2.LONGEST_FRAME
        if http2.INITIAL_WINDOW_SIZE in values:
            self._windows.change_initial(values[http2.INITIAL_WINDOW_SIZE])
            self._send_waiting()
        table = values.get(http2.HEADER_TABLE_SIZE, 0)
        # Never smaller: blocks that the client compressed before it saw the new size may still be on their way.
        self._headers.max_allowed_table_size = max(self._headers.max_allowed_table_size, table)
        return http2.settings(values.items())

    # Parts of the above.

    def _send_waiting(self) -> None:
        if frames := self._windows.sendable():
            self._runtime.write(b"".join(frames))

    def _give_credit(self, *, all_of_it: bool) -> None:
        if credit := self._windows.credit(all_of_it=all_of_it):
            self._client.write(http2.window_update(0, credit))

    def _late(self, stream: int) -> None:
        """One call ends; the others of the connection have done nothing wrong."""
        self._served.complain(Reason.CALL)
        text = f"koord-runtime-proxy: the request was not complete after {self._served.limits.body:g} s"
        self.reject(stream, grpc_messages.DEADLINE_EXCEEDED, text)

    def _settle(self) -> None:
        if not self._is_over:
            self._served.follow(has_requests=not self.is_idle, is_cut=self._client_frames.is_cut)

    def _progress(self) -> int | None:
        """It is the client's turn if it does not read, or has sent no request completely."""
        return self._client.progress(is_its_turn=not any(self._open.values()))

    def _forget(self, stream: int) -> None:
        self._open.pop(stream, None)
        self._windows.close(stream)
        self._give_credit(all_of_it=True)
        self._settle()
        if self._draining and self.is_idle:
            self._on_end()

    def _abandon(self, stream: int) -> None:
        if (call := self._end_call(stream)) is not None:
            call.abandoned()

    def _end_call(self, stream: int) -> InterceptedCall | None:
        """Take the call of the stream out, if it has one: its time limit and its part of the budget end with it."""
        call = self._calls.pop(stream, None)
        if call is not None:
            self._served.lift(call.limit)
            self._budget.give_back(call.buffered)
        return call

    def _break(self, error: Exception) -> None:
        logger.warning("a connection is closed: %s", error)
        for transport in (self._client, self._runtime):
            transport.write(http2.go_away(self._last_stream, http2.PROTOCOL_ERROR))
        self.lost()
        self._on_end()
