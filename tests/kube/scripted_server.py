"""An API server that plays a script: each request gets the next step, be it a response, half a response or none."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from aiohttp import web

Step = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Step:
    """A whole response; bytes are sent as they are."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()

    async def step(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers=headers, content_type="application/json")

    return step


def failure(status: int, reason: str, message: str = "no", headers: Mapping[str, str] | None = None) -> Step:
    """A Status that says no."""
    return response(status_document(status, reason, message), status, headers)


def status_document(code: int, reason: str, message: str = "no") -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def stream(*chunks: bytes, end: bool = True, reached: asyncio.Event | None = None) -> Step:
    """The chunks one by one; after them a proper end, or silence with the connection held open."""

    async def step(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if reached is not None:
            reached.set()
        if not end:
            await asyncio.Event().wait()
        return response

    return step


def cut(*chunks: bytes) -> Step:
    """The chunks, then the connection breaks in the middle of the response; without chunks, before it."""

    async def step(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        if chunks:
            await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        assert request.transport is not None
        request.transport.close()
        return response

    return step


def silence(reached: asyncio.Event | None = None) -> Step:
    """No response at all."""

    async def step(_: web.BaseRequest) -> web.StreamResponse:
        if reached is not None:
            reached.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return step


async def who(request: web.BaseRequest) -> web.StreamResponse:
    """Answer with the name in the client's certificate."""
    assert request.transport is not None
    certificate: Any = request.transport.get_extra_info("peercert") or {"subject": []}
    return web.Response(text=str(dict(pair for part in certificate["subject"] for pair in part).get("commonName")))


def event(kind: str, document: Any) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def config_map(name: str, version: str = "1", **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version},
        **fields,
    }


def list_document(*items: Any, version: str = "10", token: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version, "continue": token}, "items": list(items)}


class ScriptedServer:
    """Runs on loopback while its ``async with`` block does; ``received`` has every request so far."""

    def __init__(self, *steps: Step, tls: ssl.SSLContext | None = None, handler_cancellation: bool = False) -> None:
        self._steps = list(steps)
        self._tls = tls
        self._handler_cancellation = handler_cancellation
        self._ports: set[int] = set()
        self.received: list[Received] = []
        self.url = ""

    async def __aenter__(self) -> ScriptedServer:
        self._runner = web.ServerRunner(self._server(), shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def _server(self) -> web.Server:
        return web.Server(self._handle, access_log=None, handler_cancellation=self._handler_cancellation)

    @property
    def connections(self) -> int:
        """How many connections requests came on."""
        return len(self._ports)

    @property
    def remaining(self) -> int:
        return len(self._steps)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        assert request.transport is not None
        self._ports.add(request.transport.get_extra_info("peername")[1])
        self.received.append(Received(request.method, request.path_qs, request.headers, body))
        if not self._steps:
            raise AssertionError(f"no step left for {request.method} {request.path_qs}")
        return await self._steps.pop(0)(request)
