"""The streams of one connection to a server whose clients may not take for ever.

The rules are in ``koordinator.base.served_connections``; what speaks over the streams says what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from koordinator.base.served_connections import ServedConnection

Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter, "ServedStream"], None]


class ServedStream(asyncio.StreamReaderProtocol):
    """Counts what is received, and says whose turn it is; the end is known before what came before it is read."""

    def __init__(self, served: ServedConnection, accepted: Accepted, *, limit: int) -> None:
        """``accepted`` is given the streams; ``limit`` bounds the bytes that wait to be read, and their lines."""
        self.served = served
        self.received = 0
        """Bytes."""
        self.gone = asyncio.Event()
        """Set when the client has sent all, or has gone."""
        reader = asyncio.StreamReader(limit=limit)
        super().__init__(reader, lambda reader, writer: accepted(reader, writer, self))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio.Transport.
        drop = cast("asyncio.Transport", transport).abort
        if not self.served.is_open:
            drop()
            return
        self.served.drop = drop
        self.served.await_header()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self.served.closed()
        super().connection_lost(exc)
