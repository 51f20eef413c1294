"""Whether this replica's webhooks answer as API servers will ask them: over TLS, verified by the authority on disk."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp

from koordinator.kube.errors import CredentialError
from koordinator.kube.tls import TLSSettings, build_context
from koordinator.manager.webhook.certificate_files import AUTHORITY
from koordinator.manager.webhook.configuration_sync import ConfigurationSync

_SECONDS: Final = 5.0


class Readiness:
    """The check ``webhook-ready``. ``name`` is the one that the serving certificate must be good for."""

    def __init__(self, sync: ConfigurationSync, folder: Path, name: str, address: str, port: int) -> None:
        self._sync = sync
        self._authority = folder / AUTHORITY
        self._name = name
        self._url = f"https://{f'[{address}]' if ':' in address else address}:{port}/healthz"
        self._withdrawn = False

    def withdraw(self) -> None:
        """Not ready any more, though the server goes on for a moment: no new work is to be sent here."""
        self._withdrawn = True

    async def check(self) -> str:
        """What is wrong; "" when all is well."""
        if self._withdrawn:
            return "webhooks are about to stop"
        if not self._sync.succeeded.is_set():
            return f"webhook certificates and configurations are not in place: {self._sync.last_error}"
        try:
            tls = build_context(TLSSettings(authority_file=str(self._authority)))
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_SECONDS)) as session,
                session.get(self._url, ssl=tls, server_hostname=self._name) as answer,
            ):
                return "" if answer.status == HTTPStatus.OK else f"{self._url}: {answer.status}"
        except (CredentialError, aiohttp.ClientError, ssl.SSLError, TimeoutError, OSError) as error:
            return f"{self._url}: {error or type(error).__name__}"
