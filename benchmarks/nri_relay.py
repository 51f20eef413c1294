"""Stands between a container runtime and its NRI plugin, and takes the time of each call of the plugin.

A call is timed from when it has come from the runtime until the plugin's response has come whole, and a message is
passed on before it is looked at. The relay is a thread of its own with priority over what the runtime starts, which
keeps all CPUs busy: what is timed is the plugin, its wait for a CPU included.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from koordinator.api.protobuf.nri_pb2 import Event, StateChangeEvent, TtrpcRequest

_PLUGIN: Final = 1
"""The conversation in which the runtime calls the plugin."""
_REQUEST: Final = 1
_RESPONSE: Final = 2
_FRAME: Final = struct.Struct(">II")
_MESSAGE: Final = struct.Struct(">IIBB")
_PRIORITY: Final = -15
_BUFFER_BYTES: Final = 1 << 18


@dataclass(slots=True)
class Call:
    """``seconds`` is None while there is no response. ``at`` is by the monotonic clock."""

    method: str
    at: float
    seconds: float | None = None


@dataclass(slots=True)
class _Parser:
    """The messages of one direction: frames of a multiplexer, each with a part of a conversation."""

    raw: bytearray = field(default_factory=bytearray)
    messages: bytearray = field(default_factory=bytearray)

    def feed(self, content: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Stream, kind and content of the messages that are whole now."""
        self.raw += content
        while len(self.raw) >= _FRAME.size:
            number, length = _FRAME.unpack_from(self.raw)
            if len(self.raw) < _FRAME.size + length:
                break
            if number == _PLUGIN:
                self.messages += self.raw[_FRAME.size : _FRAME.size + length]
            del self.raw[: _FRAME.size + length]
        while len(self.messages) >= _MESSAGE.size:
            length, stream, kind, _ = _MESSAGE.unpack_from(self.messages)
            if len(self.messages) < _MESSAGE.size + length:
                break
            yield stream, kind, bytes(self.messages[_MESSAGE.size : _MESSAGE.size + length])
            del self.messages[: _MESSAGE.size + length]


class _Connection:
    """A plugin's, and the one that was made for it to the runtime."""

    def __init__(self, plugin: socket.socket, runtime: socket.socket, calls: list[Call]) -> None:
        self._other = {plugin: runtime, runtime: plugin}
        self._runtime = runtime
        self._parsers = {plugin: _Parser(), runtime: _Parser()}
        self._calls = calls
        self._open: dict[int, Call] = {}

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return tuple(self._other)

    def relay(self, source: socket.socket) -> bool:
        """What has come from one of them; False when it has ended."""
        try:
            content = source.recv(_BUFFER_BYTES)
            if content:
                self._other[source].sendall(content)
        except OSError:
            return False
        now = time.monotonic()
        for stream, kind, message in self._parsers[source].feed(content):
            if source is self._runtime and kind == _REQUEST:
                call = self._open[stream] = Call(_method(message), now)
                self._calls.append(call)
            elif source is not self._runtime and kind == _RESPONSE and stream in self._open:
                call = self._open.pop(stream)
                call.seconds = now - call.at
        return bool(content)

    def close(self) -> None:
        for each in self._other:
            each.close()


def _method(message: bytes) -> str:
    request = TtrpcRequest.FromString(message)
    if request.method != "StateChange":
        return request.method
    # Older runtimes call the plugin in this way when a pod is run.
    return Event.Name(StateChangeEvent.FromString(request.payload).event)


class NRIRelay:
    """Plugins connect to ``socket``; ``runtime`` is that of the runtime. ``calls`` are all so far."""

    def __init__(self, path: Path, runtime: Path) -> None:
        self.socket: Final = path
        self.calls: Final[list[Call]] = []
        self.connections = 0
        self._runtime = runtime

    @contextmanager
    def running(self) -> Iterator[None]:
        awake, wake = socket.socketpair()
        with awake, wake, socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.socket))
            listening.listen()
            thread = threading.Thread(target=self._run, args=(listening, awake), name="NRI relay")
            thread.start()
            try:
                yield
            finally:
                wake.shutdown(socket.SHUT_RDWR)
                thread.join()
                self.socket.unlink()

    def _run(self, listening: socket.socket, awake: socket.socket) -> None:
        # The priority of this thread alone; whoever may start containers may have it.
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)
        with selectors.DefaultSelector() as selector:
            selector.register(listening, selectors.EVENT_READ)
            selector.register(awake, selectors.EVENT_READ)
            is_stopped = False
            while not is_stopped:
                for key, _ in selector.select():
                    if key.fileobj is awake:
                        is_stopped = True
                    elif key.fileobj is listening:
                        self._accept(listening, selector)
                    elif key.fileobj in selector.get_map():
                        self._relay(key.fileobj, key.data, selector)
            for connection in {key.data for key in selector.get_map().values()} - {None}:
                connection.close()

    def _relay(self, source: object, connection: _Connection, selector: selectors.BaseSelector) -> None:
        assert isinstance(source, socket.socket)
        if not connection.relay(source):
            for each in connection.sockets:
                selector.unregister(each)
            connection.close()

    def _accept(self, listening: socket.socket, selector: selectors.BaseSelector) -> None:
        plugin, _ = listening.accept()
        runtime = socket.socket(socket.AF_UNIX)
        try:
            runtime.connect(str(self._runtime))
        except OSError:
            # The plugin tries again.
            plugin.close()
            runtime.close()
            return
        self.connections += 1
        connection = _Connection(plugin, runtime, self.calls)
        for each in connection.sockets:
            selector.register(each, selectors.EVENT_READ, connection)
