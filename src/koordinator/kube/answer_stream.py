"""An answer that is read as it arrives, over a connection of its own: what a watch is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final, cast

from koordinator.kube.errors import TransportError
from koordinator.kube.http1 import ResponseParser

_HELD_BYTES: Final = 1 << 20
"""So much may wait for the reader before the server is made to wait."""


class ResponseStream(asyncio.Protocol):
    """Sends ``request`` as soon as it is connected; ``what`` names it in errors. Implements ``transport.Stream``."""

    def __init__(self, request: bytes, what: str) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._request = request
        self._what = what
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._ended = False
        self._error: TransportError | None = None
        self._paused = False

    async def begin(self) -> None:
        """Wait for the head of the answer. Raises TransportError."""
        while not self._parser.has_head:
            if self._error is not None:
                raise self._error
            await self._wait()
        self.status, self.headers = self._parser.status, self._parser.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body piece by piece. Raises TransportError when it breaks off."""
        while True:
            arrived = self._parser.take()
            if arrived:
                self._resume()
                yield arrived
            elif self._error is not None:
                raise TransportError(f"{self._what}: the stream broke off: {self._error}") from self._error
            elif self._ended:
                return
            else:
                await self._wait()

    async def read(self) -> bytes:
        """All of the body, for answers that turn out to be failures."""
        return b"".join([chunk async for chunk in self.chunks()])

    def abort(self) -> None:
        """Cut the connection: whoever waits for a chunk gets a TransportError."""
        self._end(TransportError("it was cut off"))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        try:
            complete = self._parser.feed(data)
        except TransportError as error:
            self._end(error)
            return
        if complete:
            self._end(None)
        elif self._parser.held > _HELD_BYTES and self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._ended and exc is None and self._parser.end():
            self._end(None)
        else:
            when = "in the middle of its answer" if self._parser.started else "without an answer"
            self._end(TransportError(f"the server closed the connection {when}{f': {exc}' if exc else ''}"))

    def _end(self, error: TransportError | None) -> None:
        if not self._ended:
            self._ended = True
            self._error = error
        self._changed.set()
        if self._transport is not None:
            self._transport.abort()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
