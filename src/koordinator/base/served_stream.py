"""One connection to a server whose clients may not take for ever: what its client moves, and its streams.

The rules are in ``koordinator.base.served_connections``; what speaks over the connection says what is waited for.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from koordinator.base.served_connections import ServedConnection

Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter, "ServedStream"], None]


_LENGTH: Final = struct.Struct("i")


def unread(transport: asyncio.WriteTransport | CountedTransport) -> int:
    """Bytes that were written and that the client has not got, in the buffers of the library and of the kernel.

    The library's buffer alone would not do: over TCP it shrinks by megabytes, when the kernel's has room again. What
    has reached the kernel of the client counts as read.
    """
    buffered = transport.get_write_buffer_size()
    try:
        (sent,) = _LENGTH.unpack(fcntl.ioctl(transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(_LENGTH.size)))
    except (OSError, ValueError):
        return buffered  # the socket is closed already, which its protocol is told in the next turn of the event loop
    return buffered + int(sent)


class CountedTransport:
    """A client's transport. It counts what the client moves: what it sends, and what it reads of what is written."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._written = 0
        self.received = 0
        """Bytes; its protocol counts them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        parts = tuple(parts)
        self._written += sum(map(len, parts))
        self._transport.writelines(parts)

    def progress(self, *, is_its_turn: bool) -> int | None:
        """For ``ServedConnection.progress``. It is the client's turn as well while the library has something to send
        that it does not read."""
        if not (is_its_turn or self._transport.get_write_buffer_size()):
            return None
        return self.received + self._written - unread(self._transport)


class ServedStream(asyncio.StreamReaderProtocol):
    """Counts what is received, and says whose turn it is; the end is known before what came before it is read."""

    def __init__(self, served: ServedConnection, accepted: Accepted, *, limit: int) -> None:
        """``accepted`` is given the streams; ``limit`` bounds the bytes that wait to be read, and their lines."""
        self.served = served
        self.client: CountedTransport
        """From the beginning of the connection to its end."""
        self.gone = asyncio.Event()
        """Set when the client has sent all, or has gone."""
        reader = asyncio.StreamReader(limit=limit)
        this = weakref.ref(self)

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if (stream := this()) is not None:
                accepted(reader, writer, stream)

        super().__init__(reader, begin)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio.Transport.
        wire = cast("asyncio.Transport", transport)
        self.client, drop = CountedTransport(wire), wire.abort
        if not self.served.is_open:
            drop()
            return
        self.served.drop = drop
        self.served.await_header()
        super().connection_made(cast("asyncio.Transport", self.client))

    def data_received(self, data: bytes) -> None:
        self.client.received += len(data)
        super().data_received(data)

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self.served.closed()
        # Neither the transport nor an exception, whose traceback has the reader that keeps it, is to lead back here:
        # the garbage collector would come late to the buffers of TLS. Why it was lost is the same to all who read.
        del self.client
        super().connection_lost(None)
