"""What koord-manager answers besides admissions: metrics on one address, health for kubelets on another, profiles on a
third."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from koordinator.base.clock import Clock
from koordinator.base.listen_address import ListenAddress
from koordinator.base.metrics import Metrics
from koordinator.kube.profile_pages import ProfilePages
from koordinator.kube.serving import Check, Handler, HealthServer

logger = logging.getLogger(__name__)

READY_CHECK: Final = "webhook-ready"
_METRICS_PATHS: Final = ("/internal-metrics", "/external-metrics", "/all-metrics")
"""The original keeps registries apart that are one here; each path gives everything."""


def make_servers(
    metrics: Metrics,
    metrics_address: ListenAddress,
    health_address: ListenAddress,
    ready: Check | None,
    routes: Mapping[str, Handler],
) -> list[HealthServer]:
    """Those that have an address. ``ready`` is the check of the webhooks, None where there are none; ``routes`` by path
    are answered beside the metrics."""
    servers = []
    if metrics_address.port:
        server = HealthServer(metrics, host=metrics_address.host, port=metrics_address.port)
        for path in _METRICS_PATHS:
            server.add_route(path, _exposition(metrics))
        for path, handler in routes.items():
            server.add_route(path, handler)
        servers.append(server)
    if health_address.port:
        server = HealthServer(metrics, host=health_address.host, port=health_address.port)
        if ready is not None:
            server.health.add(READY_CHECK, ready, "readyz")
        servers.append(server)
    return servers


def make_profile_server(metrics: Metrics, address: ListenAddress, clock: Clock) -> HealthServer | None:
    """One that serves profiles of this program, if it has an address."""
    if not address.port:
        return None
    server = HealthServer(metrics, host=address.host, port=address.port)
    ProfilePages(clock).add_to(server)
    return server


async def starts(server: HealthServer) -> bool:
    """Start one that the program can do without; the log says so where that is not possible."""
    try:
        await server.start()
    except OSError as error:
        logger.warning("profiles are not served, see --pprof-addr: %s", error)
        return False
    return True


def _exposition(metrics: Metrics) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        body, content_type = metrics.exposition(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    return handle
