"""Accepts the connections to a server: as many as there may be, and none before its client has said something.

They are accepted here and not by the event loop, which would hand over a TLS connection only after its handshake, and
which takes all that come until the process has no file descriptors left: those that never say anything would be
neither counted nor closed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import stat
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from koordinator.base.served_connections import Reason, ServedConnection, ServedConnections
from koordinator.base.time_limits import Limit

BACKLOG: Final = 4096
"""Connections that the kernel keeps until they are accepted."""
_ACCEPTED_AT_ONCE: Final = 64
_RETRY_SECONDS: Final = 1.0
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group at the other end of a unix socket."""

Heard = Callable[[socket.socket, ServedConnection], object]
"""Is given a connection whose first byte has come, and which has not been read."""


def prepare_socket(path: Path) -> None:
    """Make the folder of a socket, and remove the socket of an earlier run. OSError if that fails, or if there is
    something else at the path."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket")
    path.unlink(missing_ok=True)


def listen_at(path: str) -> socket.socket:
    """A unix socket that listens, and that root alone may use. OSError if there is something at the path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        # As containerd's and docker's: a client of it has the rights of root on the node.
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def attach(
    accepted: socket.socket,
    connection: ServedConnection,
    protocol: asyncio.Protocol,
    **options: Any,
) -> None:
    """Let a protocol have a connection; ``options`` are those of ``loop.connect_accepted_socket``."""
    if not connection.is_open:
        return
    # The library reads the end from the socket then, and cleans up.
    connection.drop = partial(_hang_up, accepted)
    try:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, accepted, **options)
        if connection.is_open:
            # A client may be gone as soon as it is here; asyncio's TLS transport then knows nothing of it.
            connection.is_known = bool(transport.get_extra_info("peercert"))
    except OSError:
        accepted.close()
        connection.closed(Reason.HANDSHAKE)


def dismiss(accepted: socket.socket, transport: asyncio.Transport, farewell: bytes) -> None:
    """Close a connection at once; ``farewell`` is said before, unless the client does not even read what it got."""
    if not transport.get_write_buffer_size():
        with suppress(OSError):
            accepted.send(farewell)
    transport.abort()


class Acceptor:
    """Accepts from ``start`` to ``stop``, and hands over each connection once its first byte is here."""

    def __init__(self, pool: ServedConnections, heard: Heard) -> None:
        self._pool = pool
        self._heard = heard
        self._listeners: list[socket.socket] = []

    def start(self, listeners: Sequence[socket.socket]) -> None:
        """Accept on sockets that listen; they are closed at the end."""
        for listener in listeners:
            listener.setblocking(False)
            self._listeners.append(listener)
        self._listen()

    def stop(self) -> None:
        """Accept no more. Connections that have not been handed over are the pool's to close."""
        self._ignore()
        self._pool.room_made = None
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _listen(self) -> None:
        self._pool.room_made = None
        for listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener)

    def _ignore(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener.fileno())

    def _pause(self) -> None:
        """Leave new connections in the kernel's queue until there is room, which is looked for after a second, too."""
        self._ignore()
        self._pool.room_made = self._listen
        retry = Limit(self._listen)
        self._pool.time_limits.add(retry)
        self._pool.time_limits.extend(retry, _RETRY_SECONDS)

    def _accept(self, listener: socket.socket) -> None:
        """Accept some of those who wait, and leave the others for the next turn of the event loop."""
        for _ in range(_ACCEPTED_AT_ONCE):
            if not self._accept_one(listener):
                return

    def _accept_one(self, listener: socket.socket) -> bool:
        """Whether there may be another."""
        if self._pool.is_full and not _is_readable(listener):
            return False  # nobody need be closed for nobody
        if not self._pool.make_room():
            self._pause()
            return False
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno not in _OUT_OF_FILES:
                raise
            if not self._pool.free_descriptor():
                self._pause()
            return False
        if not self._pool.may_use(accepted.fileno()):
            accepted.close()
            self._pause()
            return False
        accepted.setblocking(False)
        name = _process(accepted) if accepted.family == socket.AF_UNIX else str(address[0])
        connection = self._pool.open(name, partial(_stop_hearing, accepted))
        # Until then a connection costs little: neither the library's state nor that of TLS.
        asyncio.get_running_loop().add_reader(accepted.fileno(), self._hear, accepted, connection)
        return True

    def _hear(self, accepted: socket.socket, connection: ServedConnection) -> None:
        """The first byte is here, or the end."""
        asyncio.get_running_loop().remove_reader(accepted.fileno())
        try:
            has_ended = not accepted.recv(1, socket.MSG_PEEK)
        except OSError:
            has_ended = True
        if has_ended:
            accepted.close()
            connection.closed()
            return
        connection.drop = accepted.close
        connection.hear()
        self._heard(accepted, connection)


def _is_readable(listener: socket.socket) -> bool:
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return bool(poll.poll(0))


def _process(accepted: socket.socket) -> str:
    """Who has connected, to find the program that leaks connections."""
    process, _, _ = _CREDENTIALS.unpack(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return f"process {process}"


def _stop_hearing(accepted: socket.socket) -> None:
    asyncio.get_running_loop().remove_reader(accepted.fileno())
    accepted.close()


def _hang_up(accepted: socket.socket) -> None:
    with suppress(OSError):  # the client was faster
        accepted.shutdown(socket.SHUT_RDWR)
