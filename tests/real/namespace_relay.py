"""A program that makes ports of this machine's loopback reachable from the loopback of a network namespace.

    python -m tests.real.namespace_relay NAMESPACE PORT...

It listens in the namespace and connects from where it was started. One line on stdout says that it listens.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_BYTES = 1 << 16


def _enter(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # A socket stays in the namespace in which it was made.
        if _LIBC.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    finally:
        os.close(descriptor)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


def relay_to(host: str, port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """What a server does with each connection."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))

    return relay


async def _serve(listener: socket.socket) -> None:
    async with await asyncio.start_server(relay_to(*listener.getsockname()), sock=listener) as server:
        await server.serve_forever()


async def _run(listeners: list[socket.socket]) -> None:
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await asyncio.gather(*map(_serve, listeners))


if __name__ == "__main__":
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    _enter(f"/run/netns/{sys.argv[1]}")
    sockets = [socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[2:]]
    _enter(f"/proc/self/fd/{home}")
    asyncio.run(_run(sockets))
