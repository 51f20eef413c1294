"""A server with some services, and its responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from koordinator.api.codec import decode_any
from koordinator.base.metrics import Metrics
from koordinator.kube.serving import HealthServer


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    content_type: str
    text: str

    @property
    def document(self) -> Any:
        return decode_any(self.text.encode())


def send(mount: Callable[[HealthServer], None], path: str, method: str = "GET", body: str = "") -> HttpResponse:
    """The responses of a server on which ``mount`` has put its services."""

    async def run() -> HttpResponse:
        server = HealthServer(Metrics())
        mount(server)
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}{path}"
            async with aiohttp.ClientSession() as session, session.request(method, url, data=body or None) as response:
                return HttpResponse(
                    response.status, response.headers.get("Content-Type", ""), await response.text("utf-8")
                )
        finally:
            await server.stop()

    return asyncio.run(run())
