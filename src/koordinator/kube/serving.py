"""The HTTP server of a program: health, readiness and metrics, plus the routes that the program adds.

Health responses are exactly upstream's, because probes and people read them: ``ok``, a line per check with
``?verbose``, failed checks without their reason (the endpoint is public; the reason is logged).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from koordinator.api.codec import encode, to_document
from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections, ServerLimits
from koordinator.kube.health import HEALTH_PATHS, HealthChecks, HealthMetrics
from koordinator.kube.http_server import HttpServer, listen
from koordinator.kube.metrics_page import MetricsPage

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_GRACE_SECONDS: Final = 2.0
_CANCEL_SECONDS: Final = 0.5
_TEXT: Final = {"X-Content-Type-Options": "nosniff"}


class HealthServer:
    """Serves until ``stop``. ``port`` 0 selects a free port, which ``bound_port`` returns."""

    def __init__(
        self,
        metrics: Metrics,
        health: HealthChecks | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        connections: ProgramConnections | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        self.health = health or HealthChecks()
        self._health_metrics = HealthMetrics()
        self._host = host
        self._port = port
        self._tls = tls
        self._connections = connections or ProgramConnections(metrics, SystemClock())
        self._limits = limits or ServerLimits()
        self._http: HttpServer | None = None
        self._application = web.Application()
        self.bound_port = 0
        for path in HEALTH_PATHS:
            self.add_route(f"/{path}", self._health_handler(path))
            self.add_route(f"/{path}/{{check}}", self._check_handler(path))
        self.add_metrics("/metrics", metrics)
        self.add_metrics("/metrics/slis", self._health_metrics.metrics)

    def add_route(self, path: str, handler: Handler, method: str = "GET") -> None:
        """Add a path, such as ``/configz``; before ``start``."""
        self._application.router.add_route(method, path, handler)

    def add_metrics(self, path: str, metrics: Metrics) -> None:
        """Serve the metrics of another registry at ``path``; before ``start``."""
        # Not by the clock of a test: it is the machine that is spared.
        self.add_route(path, MetricsPage(metrics, SystemClock()).handle)

    def add_configuration(self, document: Callable[[], Any]) -> None:
        """Serve the effective configuration, including defaults, at ``/configz``; before ``start``."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return json_response({"componentconfig": document()})

        self.add_route("/configz", handle)

    async def start(self) -> None:
        """Start listening. Raises OSError if the address is unavailable."""
        listeners = await listen(self._host, self._port)
        self.bound_port = int(listeners[0].getsockname()[1])
        runner = web.AppRunner(self._application, shutdown_timeout=_CANCEL_SECONDS)
        await runner.setup()
        connections = self._connections.serve(str(self.bound_port), self._limits)
        self._http = HttpServer(runner, connections, self._connections.clock, tls=self._tls)
        self._http.start(listeners)
        scheme = "https" if self._tls else "http"
        logger.info("serving health and metrics on %s://%s:%d", scheme, self._host, self.bound_port)

    async def stop(self) -> None:
        """Stop listening; running requests get two seconds to finish."""
        if self._http is not None:
            await self._http.stop(_GRACE_SECONDS)
            self._http = None

    def _health_handler(self, path: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._serve_health(path, request)

        return handle

    def _check_handler(self, path: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            name = request.match_info["check"]
            if name not in self.health.checks[path]:
                return web.Response(status=404, text="404 page not found\n", headers=_TEXT)
            failure = await self.health.failure(path, name)
            if failure:
                return web.Response(status=500, text=f"internal server error: {failure}\n", headers=_TEXT)
            return web.Response(text="ok", headers=_TEXT)

        return handle

    async def _serve_health(self, path: str, request: web.Request) -> web.StreamResponse:
        excluded = set(request.query.getall("exclude", []))
        lines: list[str] = []
        failed: list[str] = []
        for name in list(self.health.checks[path]):
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            failure = await self.health.failure(path, name)
            self._health_metrics.checked(name, path, healthy=not failure)
            if failure:
                failed.append(f"{name}: {failure}")
            lines.append(f"[-]{name} failed: reason withheld" if failure else f"[+]{name} ok")
        unknown = sorted(excluded - set(self.health.checks[path]))
        if unknown:
            names = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if failed:
            logger.info("%s check failed: %s", path, "; ".join(failed))
            return web.Response(status=500, text="\n".join([*lines, f"{path} check failed\n"]), headers=_TEXT)
        if "verbose" in request.query:
            return web.Response(text="\n".join([*lines, f"{path} check passed\n"]), headers=_TEXT)
        return web.Response(text="ok", headers=_TEXT)


def json_response(document: Any, status: int = 200) -> web.Response:
    """Return a JSON response with a document, which may contain structs."""
    return web.Response(
        status=status, body=encode(to_document(document)), content_type="application/json", charset="utf-8"
    )
