"""The API server's whole HTTP stack in memory: bytes in, bytes out, no socket, no TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
from aiohttp import web

from koordinator.base.clock import Clock, ManualClock
from koordinator.cluster.admission.plugins import admission_chain
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.http.access import Authenticator
from koordinator.cluster.http.application import Application, HttpLimits
from koordinator.cluster.http.endpoints import Health
from koordinator.cluster.http.reviews import REVIEW_RESOURCES
from koordinator.cluster.resource import Registry
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.system_objects import create_system_objects
from koordinator.cluster.verbs.environment import Environment

TOKEN = "token"
_PATIENCE = 400
"""Turns of the event loop in which a response in memory is there, if it comes at all."""


@dataclass(frozen=True)
class HttpResponse:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.body)


class MemoryTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False
        self.end = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.written += data

    def close(self) -> None:
        self.closed = True
        self.end.set()

    def abort(self) -> None:
        self.closed = True
        self.end.set()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Connection:
    """One client's."""

    def __init__(self, server: web.Server) -> None:
        self.transport = MemoryTransport()
        self._protocol = server()
        self._protocol.connection_made(self.transport)

    async def send(self, data: bytes) -> HttpResponse | None:
        """The response, or None when there is no whole one."""
        self._protocol.data_received(data)
        for _ in range(_PATIENCE):
            await asyncio.sleep(0)
            response = parse(bytes(self.transport.written), bodiless=data.startswith(b"HEAD "))
            if response is not None or self.transport.closed:
                return response
        return None

    def send_part(self, data: bytes) -> None:
        """Of a request that goes on."""
        self._protocol.data_received(data)

    async def ended(self) -> None:
        """Returns when the server has closed the connection."""
        await self.transport.end.wait()

    async def close(self) -> None:
        self._protocol.connection_lost(None)
        await asyncio.sleep(0)


def parse(data: bytes, *, bodiless: bool = False) -> HttpResponse | None:
    """The first response in what a server wrote."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
    length = 0 if bodiless else int(headers.get("content-length", 0))
    if len(rest) < length:
        return None
    return HttpResponse(int(first.split(" ")[1]), headers, rest[:length])


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request with the server's token and the length of its body."""
    sent = {"Host": "x", "Authorization": f"Bearer {TOKEN}", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in sent.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode(errors="surrogateescape") + body


@asynccontextmanager
async def memory_server(clock: Clock | None = None, limits: HttpLimits | None = None) -> AsyncIterator[web.Server]:
    """With the system's objects and all built-in kinds."""
    registry = Registry((*BUILTIN_RESOURCES, *REVIEW_RESOURCES))
    environment = Environment(MemoryStorage(), registry, clock or ManualClock(), Random(1), admission=admission_chain())
    await create_system_objects(environment)
    server = Application(environment, Authenticator.of(TOKEN), Health(), limits).server()
    yield server
    # A time of 0 is none for aiohttp.
    await server.shutdown(0.01)
    await environment.storage.close()
