"""The TLS context of a server whose certificate changes while it runs.

Each connection takes the newest certificate at its handshake; those that are open keep theirs until they end, so that
nothing in hand is dropped.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Final

from koordinator.manager.webhook.certificate_files import TLS_CERTIFICATE, TLS_KEY, CertificateFilesError

logger = logging.getLogger(__name__)

_Version = tuple[tuple[int, int, int], ...]
_PROTOCOLS: Final = ("http/1.1",)


class ServingCertificate:
    """Serves the pair ``tls.crt`` and ``tls.key`` of one folder. ``context`` is for the server; it stays the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._current: ssl.SSLContext | None = None
        self._version: _Version = ()
        self.context = _empty_context()
        self.context.sni_callback = self._present

    def reload(self) -> bool:
        """Take the files as they are now; True when they were not those in use.

        Raises CertificateFilesError where they cannot be used; what was in use stays so.
        """
        certificate, key = self._folder / TLS_CERTIFICATE, self._folder / TLS_KEY
        try:
            version = (_version(certificate), _version(key))
            if version == self._version:
                return False
            context = _empty_context()
            context.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            raise CertificateFilesError(f"{certificate} and {key} cannot be served: {error}") from error
        self._current, self._version = context, version
        return True

    async def follow(self) -> None:
        """Reload what somebody else has written into the folder; the body of a loop."""
        if self.reload():
            logger.info("serving the certificate that has appeared in %s", self._folder)

    def _present(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> int | None:
        """Called by the TLS library at each handshake, also for clients that name no server."""
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None


def _empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(_PROTOCOLS))
    return context


def _version(path: Path) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size
