"""The HTTP server of a program: health, readiness and metrics, plus the routes that the program adds.

Health responses are exactly upstream's, because probes and people read them: ``ok``, a line per check with
``?verbose``, failed checks without their reason: the endpoint is public. The reason is logged when a
check begins to fail; probes may ask several times a second.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.said_once import SaidOnce
from koordinator.base.served_connections import ProgramConnections
from koordinator.base.server_limits import ServerLimits
from koordinator.kube.accepted_connections import listen
from koordinator.kube.health import HEALTH_PATHS, HealthChecks, HealthMetrics
from koordinator.kube.metrics_page import MetricsPage
from koordinator.kube.page_server import PageServer
from koordinator.kube.pages import Handler, Request, Response, Routes, json_response

logger = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 2.0
_TEXT: Final = {"X-Content-Type-Options": "nosniff"}


class Admission(Protocol):
    """Says which requests are answered at all."""

    async def admit(self, request: Request) -> None:
        """Raises PageError for one that is not."""


class HealthServer:
    """Serves until ``stop``. ``port`` 0 selects a free port, which ``bound_port`` returns."""

    def __init__(
        self,
        metrics: Metrics,
        health: HealthChecks | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        field: str = "",
        tls: ssl.SSLContext | None = None,
        connections: ProgramConnections | None = None,
        limits: ServerLimits | None = None,
        access: Admission | None = None,
    ) -> None:
        """With ``access``, whoever asks is admitted or not; without, all that reach the port may see everything."""
        self.health = health or HealthChecks()
        self._health_metrics = HealthMetrics()
        self._failing: dict[tuple[str, str], SaidOnce] = {}
        self._host = host
        self._port = port
        self._field = field
        self._tls = tls
        self._connections = connections or ProgramConnections(metrics, SystemClock())
        self._limits = limits or ServerLimits()
        self._access = access
        self._http: PageServer | None = None
        self._routes = Routes()
        self.bound_port = 0
        for path in HEALTH_PATHS:
            self.add_route(f"/{path}", self._health_handler(path))
            self.add_route(f"/{path}/{{check}}", self._check_handler(path))
        self.add_metrics("/metrics", metrics)
        self.add_metrics("/metrics/slis", self._health_metrics.metrics)

    def add_route(self, path: str, handler: Handler, method: str = "GET") -> None:
        """Add a path, such as ``/configz``; before ``start``. ValueError if it has a handler."""
        self._routes.add(method, path, handler)

    def add_metrics(self, path: str, metrics: Metrics) -> None:
        """Serve the metrics of another registry at ``path``; before ``start``."""
        # Not by the clock of a test: it is the machine that is spared.
        self.add_route(path, MetricsPage(metrics, SystemClock()).handle)

    def add_configuration(self, document: Callable[[], Any]) -> None:
        """Serve the effective configuration, including defaults, at ``/configz``; before ``start``."""

        async def handle(request: Request) -> Response:
            return json_response({"componentconfig": document()})

        self.add_route("/configz", handle)

    async def start(self) -> None:
        """Start listening. Raises OSError if the address is unavailable."""
        listeners = await listen(self._host, self._port, self._field)
        self.bound_port = int(listeners[0].getsockname()[1])
        connections = self._connections.serve(str(self.bound_port), self._limits)
        self._http = PageServer(self._respond, connections, self._connections.clock, tls=self._tls)
        self._http.start(listeners)
        scheme = "https" if self._tls else "http"
        logger.info("serving health and metrics on %s://%s:%d", scheme, self._host, self.bound_port)

    async def stop(self) -> None:
        """Stop listening; running requests get two seconds to finish."""
        if self._http is not None:
            await self._http.stop(_GRACE_SECONDS)
            self._http = None

    async def _respond(self, request: Request) -> Response:
        if self._access is not None:
            await self._access.admit(request)
        return await self._routes.respond(request)

    def _health_handler(self, path: str) -> Handler:
        async def handle(request: Request) -> Response:
            return await self._serve_health(path, request)

        return handle

    def _check_handler(self, path: str) -> Handler:
        async def handle(request: Request) -> Response:
            name = request.parameters["check"]
            if name not in self.health.checks[path]:
                return Response(status=404, text="404 page not found\n", headers=_TEXT)
            failure = await self.health.failure(path, name)
            if failure:
                return Response(status=500, text=f"internal server error: {failure}\n", headers=_TEXT)
            return Response(text="ok", headers=_TEXT)

        return handle

    def _said(self, path: str, name: str) -> SaidOnce:
        """Of one check: a request that excludes it tells nothing about it."""
        if (path, name) not in self._failing:
            self._failing[path, name] = SaidOnce(logger, over=lambda _: f"{path} check passes again: {name}")
        return self._failing[path, name]

    async def _serve_health(self, path: str, request: Request) -> Response:
        excluded = set(request.query.getall("exclude", []))
        lines: list[str] = []
        has_failed = False
        for name in list(self.health.checks[path]):
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            failure = await self.health.failure(path, name)
            self._health_metrics.checked(name, path, healthy=not failure)
            said = self._said(path, name)
            with said.round():
                if failure:
                    has_failed = True
                    # The text may have a time in it, which differs at each request.
                    said.say(f"{path} check failed: {name}: {failure}", about=name, level=logging.INFO)
            lines.append(f"[-]{name} failed: reason withheld" if failure else f"[+]{name} ok")
        unknown = sorted(excluded - set(self.health.checks[path]))
        if unknown:
            names = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if has_failed:
            return Response(status=500, text="\n".join([*lines, f"{path} check failed\n"]), headers=_TEXT)
        if "verbose" in request.query:
            return Response(text="\n".join([*lines, f"{path} check passed\n"]), headers=_TEXT)
        return Response(text="ok", headers=_TEXT)
