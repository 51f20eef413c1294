"""An HTTP/1.1 server for pages: one request at a time on each connection, and each request and response held whole.

What a client may take up is limited as at all servers of a program (``koordinator.base.served_connections``).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from http import HTTPStatus
from socket import socket
from typing import Final

from multidict import CIMultiDict

from koordinator.base import http_streams
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.http_streams import EndedError, Head, HttpError, TooLargeError
from koordinator.base.served_connections import Reason, ServedConnection, ServedConnections
from koordinator.base.served_stream import ServedStream
from koordinator.kube.accepted_connections import AcceptedConnections
from koordinator.kube.pages import ClientName, PageError, Request, Response

logger = logging.getLogger(__name__)

Respond = Callable[[Request], Awaitable[Response]]

_LONGEST_BODY: Final = 1 << 20
_PIECE: Final = 64 << 10
_CANCEL_SECONDS: Final = 0.5
_BODY_IS_NEXT: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class PageServer:
    """Serves from ``start`` to ``stop``. ``respond`` may raise PageError; what else it raises is logged."""

    def __init__(
        self, respond: Respond, pool: ServedConnections, clock: Clock, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._respond = respond
        self._pool = pool
        self._clock = clock
        self._accepted = AcceptedConnections(pool, self._protocol, tls)
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    def start(self, listeners: Sequence[socket]) -> None:
        """Serve on sockets that listen; they are closed at the end."""
        self._accepted.start(listeners)

    async def stop(self, grace: float) -> None:
        """Accept no more, let requests in progress finish for ``grace`` seconds, and close all connections."""
        self._accepted.stop()
        for connection in self._connections.values():
            connection.is_last = True
        try:
            with suppress(TimeoutError):
                await within(self._clock, grace, self._pool.quiet.wait())
        finally:
            self._pool.close_all()
            for task in self._connections:
                task.cancel()
            if self._connections:
                await asyncio.wait([*self._connections], timeout=_CANCEL_SECONDS)
            await self._accepted.ended()
            await self._pool.time_limits.close()

    def _protocol(self, served: ServedConnection) -> asyncio.Protocol:
        return ServedStream(served, self._serve, limit=http_streams.LONGEST_HEAD)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: ServedStream) -> None:
        connection = _Connection(reader, writer, stream, self._respond, self._clock)
        task = asyncio.create_task(connection.serve(), name="serve pages")
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)


class _LateError(HttpError):
    """The body of a request is not here in time."""


class _Connection:
    """One connection of a client: its requests, one after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        stream: ServedStream,
        respond: Respond,
        clock: Clock,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._stream = stream
        self._served = stream.served
        self._served.progress = self._progress
        self._respond = respond
        self._clock = clock
        self._client = _client_name(writer.get_extra_info("ssl_object"))
        self._is_its_turn = False
        """Whether the rest of a body is to come."""
        self.is_last = False
        """Whether the request in progress is the last one."""

    async def serve(self) -> None:
        """Respond to requests until either side closes."""
        try:
            while not self.is_last:
                head = await http_streams.read_head(self._reader, self._served.await_header)
                if head is None:
                    return
                self._served.begin()
                await self._exchange(head)
                self._served.rest(is_complete=True)
        except (EndedError, ConnectionError):
            pass  # the client has gone
        except HttpError as error:
            await self._refuse(error)
        except Exception:
            # One request must not end the others.
            logger.exception("a connection to a page is closed")
        finally:
            self._writer.close()

    def _progress(self) -> int | None:
        return self._stream.client.progress(is_its_turn=self._is_its_turn)

    async def _exchange(self, head: Head) -> None:
        """One request and its response."""
        head.check_request()
        method, target, version = head.words()
        options = head.get("connection").lower()
        self.is_last |= version == "HTTP/1.0" or "close" in options
        headers, body = CIMultiDict(head.headers), await self._body(head)
        request = Request.to(method, target, headers, body, self._client)
        response = await self._response(request)
        if response.parts is None:
            await self._send(response, () if method == "HEAD" else (response.body,), len(response.body))
        else:
            async with aclosing(response.parts) as parts:
                await self._send_parts(response, parts, is_chunked=version == "HTTP/1.1", has_body=method != "HEAD")

    async def _body(self, head: Head) -> bytes:
        if not (head.is_chunked or head.length):
            return b""
        if head.get("expect").lower() == "100-continue":
            self._writer.write(_BODY_IS_NEXT)
        late = _LateError(f"the body was not here after {self._served.limits.body:g} s")
        self._is_its_turn = True
        self._served.await_body(lambda: self._reader.set_exception(late))
        try:
            return await http_streams.read_body(head, self._reader, _LONGEST_BODY)
        finally:
            self._is_its_turn = False
            self._served.work()

    async def _response(self, request: Request) -> Response:
        try:
            return await self._respond(request)
        except PageError as error:
            return error.response
        except Exception:
            logger.exception("%s %s has failed", request.method, request.path)
            return PageError(500).response

    async def _send(self, response: Response, parts: Sequence[bytes], length: int) -> None:
        self._served.deliver(length)
        self._writer.writelines((self._head(response, ("Content-Length", str(length))), *parts))
        await self._writer.drain()

    async def _send_parts(
        self, response: Response, parts: AsyncIterator[bytes], *, is_chunked: bool, has_body: bool
    ) -> None:
        """Each part has the time of a response. What is not sent in chunks ends with its connection."""
        self._writer.write(self._head(response, *([("Transfer-Encoding", "chunked")] if is_chunked else [])))
        if not has_body:
            return
        async for part in parts:
            if not part:
                continue  # an empty chunk would be the last one
            self._served.deliver(len(part))
            self._writer.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
            await self._writer.drain()
        if is_chunked:
            self._writer.write(_LAST_CHUNK)
            await self._writer.drain()

    def _head(self, response: Response, *headers: tuple[str, str]) -> bytes:
        status = response.status
        closing = [("Connection", "close")] if self.is_last else []
        date = ("Date", _http_date(self._clock.now()))
        line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
        return Head(line, (*response.headers.items(), *headers, date, *closing)).encode()

    async def _refuse(self, error: HttpError) -> None:
        """Respond to what is no complete request, and wait until the client has read that: it may still be sending,
        and a connection that is closed with unread bytes loses the response."""
        self.is_last = True
        if isinstance(error, _LateError):
            status = 408
        else:
            self._served.complain(Reason.MALFORMED)
            status = 413 if isinstance(error, TooLargeError) else 400
        refusal = PageError(status, f"{status}: {HTTPStatus(status).phrase}: {error}\n").response
        with suppress(ConnectionError, HttpError):
            await self._send(refusal, (refusal.body,), len(refusal.body))
            if self._writer.can_write_eof():
                self._writer.write_eof()
                self._served.rest(is_complete=False)
                while await self._reader.read(_PIECE):
                    pass


def _client_name(connection: ssl.SSLObject | None) -> ClientName | None:
    """Of the certificate that a client has shown; the library gives only those that were verified."""
    certificate = connection.getpeercert() if connection is not None else None
    if not certificate:
        return None
    names: dict[str, list[str]] = {}
    for attribute in itertools.chain.from_iterable(certificate["subject"]):
        names.setdefault(str(attribute[0]), []).append(str(attribute[1]))
    # Of several, Go takes the last.
    user = names.get("commonName", [""])[-1]
    return ClientName(user, tuple(names.get("organizationName", ()))) if user else None


def _http_date(now: datetime) -> str:
    """A time in UTC as HTTP writes it."""
    day, month = _DAYS[now.weekday()], _MONTHS[now.month - 1]
    return f"{day}, {now.day:02} {month} {now.year} {now:%H:%M:%S} GMT"
