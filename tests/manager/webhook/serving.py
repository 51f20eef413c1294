"""Asking a webhook server over TLS, as an API server does."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from koordinator.base.clock import Clock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.base.server_limits import ServerLimits
from koordinator.kube.serving_certificate import ServingCertificate
from koordinator.kube.tls import KeyPair, TLSSettings, build_context
from koordinator.manager.webhook.admission import AdmissionHandler
from koordinator.manager.webhook.admission_queue import AdmissionQueue
from koordinator.manager.webhook.certificates import Certificates
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.server import LIMITS, WebhookServer

HOST = "127.0.0.1"


@asynccontextmanager
async def serving(
    folder: Path,
    handlers: Sequence[AdmissionHandler] = (),
    metrics: Metrics | None = None,
    *,
    clock: Clock | None = None,
    limits: ServerLimits = LIMITS,
    queue: AdmissionQueue | None = None,
    client_authority: Path | None = None,
) -> AsyncIterator[WebhookServer]:
    """A server with the certificates of a folder, on a port of its own."""
    metrics, clock = metrics or Metrics(), clock or SystemClock()
    server = WebhookServer(
        handlers,
        ServingCertificate.in_folder(folder, client_authority),
        WebhookMetrics(metrics),
        clock=clock,
        port=0,
        host=HOST,
        connections=ProgramConnections(metrics, clock),
        limits=limits,
        queue=queue,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def requesting(
    server: WebhookServer, trusted: Certificates, shown: KeyPair | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that trusts one authority alone, and may show a certificate of its own."""
    tls = build_context(TLSSettings(authority=trusted.authority), shown)
    async with aiohttp.ClientSession(
        f"https://{HOST}:{server.bound_port}",
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={"Content-Type": "application/json"},
    ) as session:
        yield session


def served_certificate(server: WebhookServer, name: str | None) -> bytes:
    """What a new connection is shown, for a client that names ``name`` or nobody. Blocks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((HOST, server.bound_port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""
