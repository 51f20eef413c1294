"""HTTPS to webhook servers: connections are kept, certificates verified, responses bounded, redirects not followed."""

from __future__ import annotations

import asyncio
import math
import posixpath
import ssl
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.admission_webhooks.configuration import ClientConfig
from koordinator.cluster.admission_webhooks.connection import (
    BundleError,
    ServiceError,
    ServiceResolver,
    certified_names,
    client_context,
    explain,
    is_wrong_name,
    status_line,
    wrong_name,
)

_MAX_RESPONSE: Final = 3 << 20
"""Bytes."""
_IDLE_SECONDS: Final = 90.0
_REMEMBERED_CONTEXTS: Final = 200


class RequestError(KoordinatorError):
    """No response, or one that says that something failed."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One request: where it really goes, and as whose it goes there."""

    url: str
    host: str
    server_name: str
    context: ssl.SSLContext
    review: bytes
    timeout: float


@dataclass(slots=True)
class _Connection:
    """Of one try."""

    was_kept: bool = False


class _Status(msgspec.Struct):
    kind: str = ""
    status: str = ""
    message: str = ""


class WebhookClient:
    """One pool of connections for all webhooks; ``close`` ends it."""

    def __init__(self, services: ServiceResolver) -> None:
        self._services = services
        self._contexts: dict[tuple[str, str], ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, client: ClientConfig, review: bytes, timeout: float) -> bytes:
        """The body of a successful response. ``timeout`` is in seconds. Raises RequestError."""
        shown, server_name = _shown_url(client, timeout)
        context = self._context(client.authorities, server_name)
        try:
            call = _Call(self._address(client, shown), urlsplit(shown).netloc, server_name, context, review, timeout)
            return await self._send(call)
        except (aiohttp.ClientError, ServiceError, OSError) as error:
            why = await _wrong_name(error, server_name, client) if is_wrong_name(error) else explain(error)
            raise RequestError(f'failed to call webhook: Post "{shown}": {why}') from error

    async def _send(self, call: _Call) -> bytes:
        """Within the time of the call, whether it takes one try or two."""
        connection = _Connection()
        async with asyncio.timeout(call.timeout):
            try:
                return await self._send_once(call, connection)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not connection.was_kept:
                    raise
                # The server may have closed the kept connection just now: the request is sent once more, on a new one.
                return await self._send_once(call, _Connection())

    async def _send_once(self, call: _Call, connection: _Connection) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json, */*", "Host": call.host}
        async with self._pool().post(
            call.url,
            data=call.review,
            headers=headers,
            ssl=call.context,
            server_hostname=call.server_name,
            allow_redirects=False,
            trace_request_ctx=connection,
        ) as response:
            return await _read(response)

    def _pool(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_note_kept)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(),
                trace_configs=[trace],
            )
        return self._session

    def _address(self, client: ClientConfig, shown: str) -> str:
        if client.service is None:
            return shown
        address = self._services.resolve(client.service)
        host = f"[{address.host}]" if ":" in address.host else address.host
        parts = urlsplit(shown)
        return parts._replace(netloc=f"{host}:{address.port}").geturl()

    def _context(self, authorities: str, server_name: str) -> ssl.SSLContext:
        """One for each pair, so that a kept connection is never used for another name than it was verified for."""
        key = (authorities, server_name)
        if key not in self._contexts:
            if len(self._contexts) >= _REMEMBERED_CONTEXTS:
                self._contexts.clear()
            try:
                self._contexts[key] = client_context(authorities)
            except BundleError as error:
                raise RequestError(f"could not get REST client: {error}") from error
        return self._contexts[key]


async def _note_kept(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.was_kept = True


def _shown_url(client: ClientConfig, timeout: float) -> tuple[str, str]:
    """The URL as messages show it, and the name that the certificate must carry."""
    query = f"timeout={math.ceil(timeout)}s"
    if client.service is not None:
        service = client.service
        name = f"{service.name}.{service.namespace}.svc"
        return f"https://{name}:{service.port}{_path(client.path)}?{query}", name
    parts = urlsplit(client.url)
    return f"https://{parts.netloc}{_path(parts.path)}?{query}", parts.hostname or ""


async def _wrong_name(error: Exception, server_name: str, client: ClientConfig) -> str:
    assert isinstance(error, aiohttp.ClientConnectorCertificateError)
    found = await certified_names(error.host, error.port or 443, client.authorities)
    return wrong_name(server_name, found.addresses, found.names)


def _path(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_RESPONSE:
            raise RequestError(f"failed to call webhook: the response is longer than {_MAX_RESPONSE} bytes")
    if not 200 <= response.status <= 206:
        raise RequestError(f"failed to call webhook: {_response_detail(response, bytes(body))}")
    if not body:
        content_type = response.headers.get("Content-Type", "")
        what = f"0-length response with status code: {response.status} and content type: {content_type}"
        raise RequestError(f"failed to call webhook: {what}")
    return bytes(body)


def _response_detail(response: aiohttp.ClientResponse, body: bytes) -> str:
    """The message of a Status, or what the HTTP status and a text say."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        status = _Status()
    if status.kind == "Status" and status.status != "Success" and status.message:
        return status.message
    is_text = response.headers.get("Content-Type", "text/plain").startswith("text/")
    return status_line(response.status, body[:2048].decode(errors="replace").strip() if is_text else "unknown")
