"""The TLS server that API servers call: one path for each handler, and ``/healthz``."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aiohttp import web

from koordinator.base.clock import Clock
from koordinator.base.said_once import Bursts
from koordinator.base.served_connections import ProgramConnections
from koordinator.base.server_limits import ServerLimits
from koordinator.kube.accepted_connections import listen
from koordinator.kube.http_server import HttpServer
from koordinator.kube.serving_certificate import ServingCertificate
from koordinator.manager.webhook.admission import AdmissionHandler
from koordinator.manager.webhook.admission_queue import (
    AdmissionQueue,
    OverloadedError,
    priority_of,
)
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.missing_objects import MissingObjects

logger = logging.getLogger(__name__)

LARGEST_REQUEST: Final = 7 << 20
"""Bytes: two objects of the largest size that an API server stores, plus overhead; as in the original's library."""
LIMITS: Final = ServerLimits(connections=2000, body=30.0)
"""Each API server has one connection for every request in admission, a few hundred at most; none waits longer than half
a minute for a response."""
_STOP_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 1.0
_JSON: Final = "application/json"
_HEALTH: Final = "/healthz"
"""Open to everybody: the readiness check of this program calls it, too."""
_UNKNOWN: Final = 401
_NO_CERTIFICATE: Final = (
    "%s is refused: %s has shown no certificate of an authority in %s, see --webhook-client-ca-file "
    "(%d more since the last such line)"
)
_REFUSED: Final = 429
_GONE: Final = 503
"""Nobody reads it: the API server no longer waits for the response, so that none is worked out."""
_TOO_MANY: Final = "koord-manager has more admissions of at least this priority than it can answer now"
_PORT_FIELD: Final = "the environment variable WEBHOOK_PORT"

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
        connections: ProgramConnections,
        limits: ServerLimits = LIMITS,
        missing: MissingObjects | None = None,
        queue: AdmissionQueue | None = None,
    ) -> None:
        self._certificate = certificate
        self._clock = clock
        self._host = host
        self._port = port
        self._connections = connections
        self._limits = limits
        self._http: HttpServer | None = None
        self._metrics = metrics
        self._queue = queue or AdmissionQueue(clock)
        self._application = web.Application(client_max_size=LARGEST_REQUEST)
        self.bound_port = 0
        self._refusals = Bursts(clock)
        self._application.router.add_get(_HEALTH, _healthy)
        for handler in handlers:
            admission = self._admission(Webhook(handler, metrics, clock, missing))
            known = admission if self._certificate.client_authority is None else self._of_known_clients(admission)
            self._application.router.add_post(handler.path, known)

    async def start(self) -> None:
        """Load the certificate as it is now and listen, unless both is done already.

        Raises ServingCertificateError, or OSError when the address cannot be bound.
        """
        self._certificate.reload()
        if self._http is not None:
            return
        listeners = await listen(self._host, self._port, _PORT_FIELD)
        self.bound_port = int(listeners[0].getsockname()[1])
        runner = web.AppRunner(self._application, shutdown_timeout=_CLOSE_SECONDS)
        await runner.setup()
        connections = self._connections.serve(str(self.bound_port), self._limits)
        self._http = HttpServer(runner, connections, self._clock, tls=self._certificate.context)
        self._http.start(listeners)
        logger.info("serving webhooks on https://%s:%d", self._host or "*", self.bound_port)

    async def stop(self, linger: float = 0.0) -> None:
        """Stop listening, let requests in flight finish for up to three seconds, and close all connections.

        Before that, requests are still served for ``linger`` seconds, but each connection is closed with its response,
        so that a Service can route clients elsewhere.
        """
        http, self._http = self._http, None
        if http is None:
            return
        http.close_after_response()
        try:
            await self._clock.sleep(linger)
        finally:
            await http.stop(_STOP_SECONDS)

    def _of_known_clients(self, handler: RequestHandler) -> RequestHandler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if not has_certificate(request):
                if (more := self._refusals.unsaid(request.path)) is not None:
                    logger.warning(
                        _NO_CERTIFICATE, request.path, request.remote, self._certificate.client_authority, more
                    )
                return web.Response(status=_UNKNOWN, text="a client certificate is needed")
            return await handler(request)

        return handle

    def _admission(self, webhook: Webhook) -> RequestHandler:
        in_flight = self._metrics.in_flight.labels(webhook.path)
        refused, gone = (self._metrics.requests.labels(webhook.path, str(status)) for status in (_REFUSED, _GONE))

        async def handle(request: web.Request) -> web.StreamResponse:
            in_flight.inc()
            try:
                body = await request.read()
                try:
                    await self._queue.turn(lambda: priority_of(body))
                except OverloadedError:
                    refused.inc()
                    return web.Response(
                        status=_REFUSED, headers={"Retry-After": self._queue.retry_after}, text=_TOO_MANY
                    )
                try:
                    if request.transport is None or request.transport.is_closing():
                        gone.inc()
                        return web.Response(status=_GONE)
                    return web.Response(body=await webhook.respond(body), content_type=_JSON)
                finally:
                    self._queue.end()
            finally:
                in_flight.dec()

        return handle


def has_certificate(request: web.BaseRequest) -> bool:
    """Whether the client has shown a certificate. Of one that has gone this is not known any more: it has not."""
    return request.transport is not None and bool(request.transport.get_extra_info("peercert"))


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
