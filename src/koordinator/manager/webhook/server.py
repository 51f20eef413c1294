"""The TLS server that API servers call: one path for each handler, and ``/healthz``."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from aiohttp import web

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.kube.serving_certificate import ServingCertificate
from koordinator.manager.webhook.admission import AdmissionHandler
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.metrics import WebhookMetrics

logger = logging.getLogger(__name__)

LARGEST_REQUEST: Final = 7 << 20
"""Bytes: two objects of the largest size that an API server stores, plus overhead; as in the original's library."""
_IDLE_SECONDS: Final = 120.0
"""Longer than API servers keep an idle connection (90 s), so that it is never closed under a request of theirs."""
_HANDSHAKE_SECONDS: Final = 10.0
_BODY_SECONDS: Final = 30.0
"""The time limit of a body that did not arrive with its headers; no API server waits longer for a response."""
MOST_CONNECTIONS: Final = 2000
"""Each API server has one connection for every request in admission, a few hundred at most."""
_STOP_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 1.0
_JSON: Final = "application/json"

RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebhookServer:
    """Serves until ``stop``. ``port`` 0 binds a free port, see ``bound_port``. ``host`` "" binds every address."""

    def __init__(
        self,
        handlers: Iterable[AdmissionHandler],
        certificate: ServingCertificate,
        metrics: WebhookMetrics,
        *,
        clock: Clock,
        port: int,
        host: str = "",
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        self._certificate = certificate
        self._clock = clock
        self._host = host
        self._port = port
        self._most_connections = most_connections
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._metrics = metrics
        self._in_hand = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._application = web.Application(client_max_size=LARGEST_REQUEST)
        self.bound_port = 0
        self.add_route("/healthz", _healthy)
        for handler in handlers:
            self.add_route(handler.path, self._admission(Webhook(handler, metrics, clock)), "POST")

    def add_route(self, path: str, handler: RequestHandler, method: str = "GET") -> None:
        """Serve one more path, such as ``/elasticQuota``; call before ``start``."""
        self._application.router.add_route(method, path, handler)

    async def start(self) -> None:
        """Load the certificate as it is now and listen, unless both is done already.

        Raises ServingCertificateError, or OSError when the address cannot be bound.
        """
        self._certificate.reload()
        if self._runner is not None:
            return
        runner = web.AppRunner(
            self._application, access_log=None, shutdown_timeout=_CLOSE_SECONDS, keepalive_timeout=_IDLE_SECONDS
        )
        await runner.setup()
        try:
            self._listener = await self._listen(runner)
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self.bound_port = int(self._listener.sockets[0].getsockname()[1])
        logger.info("serving webhooks on https://%s:%d", self._host or "*", self.bound_port)

    async def _listen(self, runner: web.AppRunner) -> asyncio.Server:
        server = runner.server
        assert server is not None

        def connection() -> asyncio.Protocol:
            if len(server.connections) < self._most_connections:
                return server()
            self._metrics.refused_connections.labels().inc()
            return _Refused()

        return await asyncio.get_running_loop().create_server(
            connection,
            self._host or None,
            self._port,
            ssl=self._certificate.context,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            backlog=1024,
        )

    async def stop(self, linger: float = 0.0) -> None:
        """Stop listening, let requests in flight finish for up to three seconds, and close all connections.

        Before that, requests are still served for ``linger`` seconds, but each connection is closed with its response,
        so that a Service can route clients elsewhere.
        """
        runner, listener, self._runner = self._runner, self._listener, None
        if runner is None or listener is None:
            return
        self._stopping = True
        try:
            await self._clock.sleep(linger)
            # Close only the listening sockets: the library would stop reading from its connections, and drop half-sent
            # requests.
            listener.close()
            with suppress(TimeoutError):
                await within(self._clock, _STOP_SECONDS, self._idle.wait())
        finally:
            listener.close()
            await runner.cleanup()

    def _admission(self, webhook: Webhook) -> RequestHandler:
        in_flight = self._metrics.in_flight.labels(webhook.path)

        async def handle(request: web.Request) -> web.StreamResponse:
            in_flight.inc()
            self._in_hand += 1
            self._idle.clear()
            try:
                body = await webhook.committed_response(await self._body(request))
                response = web.Response(body=body, content_type=_JSON)
            finally:
                in_flight.dec()
                self._in_hand -= 1
                if not self._in_hand:
                    self._idle.set()
            if self._stopping:
                response.force_close()
            return response

        return handle

    async def _body(self, request: web.Request) -> bytes:
        if request.content.is_eof():
            return await request.read()
        try:
            return await within(self._clock, _BODY_SECONDS, request.read())
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body was not here after {_BODY_SECONDS:g}s") from None


class _Refused(asyncio.Protocol):
    """Closes a connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def listening_address(webhook_host: str) -> str:
    """The address to listen on: every address, but only loopback for a host that only this machine can reach."""
    if webhook_host == "localhost":
        return "127.0.0.1"
    try:
        return webhook_host if ipaddress.ip_address(webhook_host).is_loopback else ""
    except ValueError:
        return ""


async def _healthy(request: web.Request) -> web.StreamResponse:
    return web.Response()
