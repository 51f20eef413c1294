"""Range queries of a Prometheus server: of the recommender for usage from before, of the page for the last week."""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from koordinator.base.clock import Clock
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.listen_address import is_loopback
from koordinator.kube.errors import CredentialError
from koordinator.kube.tls import RotatingContext, TLSSettings

_MOST_BYTES: Final = 64 << 20
_REQUEST_SECONDS: Final = 60.0


class PrometheusError(KoordinatorError):
    """The server could not be queried, or its response cannot be read."""


@dataclass(frozen=True, slots=True)
class Series:
    """One of a result; the values of the samples are finite."""

    labels: Mapping[str, str]
    samples: tuple[tuple[datetime, float], ...]


class PrometheusServer:
    """A server at a URL. The token is read from its file for each query; without a file of the authority, those of the
    machine are trusted."""

    def __init__(self, address: str, clock: Clock, token_file: str = "", ca_file: str = "") -> None:
        self._address = address
        self._clock = clock
        self._token_file = token_file
        self._ca_file = ca_file
        self._tls: RotatingContext | None = None

    async def query_range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The series from ``start`` to ``end``, in seconds since 1970. Raises PrometheusError."""
        parameters = {"query": query, "start": f"{start:.0f}", "end": f"{end:.0f}", "step": f"{step:.0f}"}
        url = f"{self._address.rstrip('/')}/api/v1/query_range"
        try:
            timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
            tls, headers = self._server_trust(), self._headers()
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.post(url, data=parameters, allow_redirects=False, ssl=tls) as response,
            ):
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise PrometheusError(f"{url}: the response has more than {_MOST_BYTES >> 20} MiB")
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError, CredentialError) as error:
            raise PrometheusError(f"{url}: {error or type(error).__name__}") from error
        return _matrix(url, status, bytes(body))

    def _server_trust(self) -> ssl.SSLContext:
        """Raises CredentialError. To read the authorities of a machine takes 20 ms, too long for each query."""
        if self._tls is None:
            self._tls = RotatingContext(TLSSettings(authority_file=self._ca_file), self._clock)
        self._tls.refresh()
        return self._tls.context

    def _headers(self) -> dict[str, str]:
        """Raises OSError, and PrometheusError for what is no token."""
        if not self._token_file:
            return {}
        token = Path(self._token_file).read_bytes().strip().decode("ascii", "replace")
        if not token.isascii() or not token.isprintable() or not token:
            raise PrometheusError(f"{self._token_file}: this is no token: one line of ASCII characters is")
        return {"Authorization": f"Bearer {token}"}


def check_server(flag: str, address: str, token_flag: str, token_file: str) -> None:
    """Raises ConfigurationError for what is no URL, and for a token that others could read on its way."""
    url = urlsplit(address)
    if address and url.scheme not in ("http", "https"):
        raise ConfigurationError(flag, address, "write a URL such as http://prometheus.monitoring:9090")
    if token_file and url.scheme == "http" and not is_loopback(url.hostname or ""):
        allowed = f"a token is not sent in plain text: {flag} must begin with https://"
        raise ConfigurationError(token_flag, token_file, allowed)


def _matrix(url: str, status: int, body: bytes) -> list[Series]:
    """Raises PrometheusError."""
    try:
        document = json.loads(body)
        if document["status"] != "success":
            raise PrometheusError(f"{url}: {document.get('errorType')}: {document.get('error')}")
        return [Series(dict(each["metric"]), tuple(_finite(each["values"]))) for each in document["data"]["result"]]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        excerpt = body[:200].decode("utf-8", "replace")
        raise PrometheusError(f"{url}: status {status}, not the result of a range query: {excerpt!r}") from error


def _finite(values: list[Any]) -> Iterator[tuple[datetime, float]]:
    for at, text in values:
        value = float(text)
        if math.isfinite(value):
            yield datetime.fromtimestamp(at, UTC), value
