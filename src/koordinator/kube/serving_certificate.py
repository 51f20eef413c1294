"""The TLS contexts of servers, and that of a server whose certificate is rotated while it runs.

Each connection gets the newest certificate at its handshake; open connections keep theirs until they end, so that no
running request is dropped.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Final, Self

from koordinator.base.errors import KoordinatorError

logger = logging.getLogger(__name__)

_Version = tuple[tuple[int, int, int], ...]
_PROTOCOLS: Final = ("http/1.1",)


class ServingCertificateError(KoordinatorError):
    """Unusable certificate files; the message names them."""


class ServingCertificate:
    """Serves a certificate file with its key file. The server's ``context`` stays the same object.

    A client need not show a certificate of its own; one that it shows must be of an authority in the file
    ``client_authority``, if there is one.
    """

    def __init__(self, certificate: Path, key: Path, client_authority: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._client_authority = client_authority
        self._current: ssl.SSLContext | None = None
        self._version: _Version = ()
        self.context = server_context()
        self.context.sni_callback = self._present
        if client_authority is not None:
            # A handshake begins with this context, and goes on with that of ``_present``.
            self.context.verify_mode = ssl.CERT_OPTIONAL

    @classmethod
    def in_folder(cls, folder: Path, client_authority: Path | None = None) -> Self:
        """Return the pair under the file names of a mounted Secret."""
        return cls(folder / "tls.crt", folder / "tls.key", client_authority)

    @property
    def client_authority(self) -> Path | None:
        """Of whom clients may show certificates."""
        return self._client_authority

    def reload(self) -> bool:
        """Load the files. Returns True if they differ from those in use.

        Raises ServingCertificateError if they are unusable; the previous certificate then stays in use.
        """
        certificate, key = self._certificate, self._key
        try:
            version: _Version = (_version(certificate), _version(key))
            context = server_context()
            context.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            raise ServingCertificateError(f"{certificate} and {key} cannot be served: {error}") from error
        try:
            if self._client_authority is not None:
                version = (*version, _version(self._client_authority))
                context.load_verify_locations(self._client_authority)
                context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ValueError) as error:
            text = f"{self._client_authority} has no authorities of clients that can be used: {error}"
            raise ServingCertificateError(text) from error
        if version == self._version:
            return False
        self._current, self._version = context, version
        return True

    async def reload_if_changed(self) -> None:
        """Reload if the files have changed; the body of a loop."""
        if self.reload():
            logger.info("serving the certificate that has appeared in %s", self._certificate)

    def _present(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> int | None:
        """Called by OpenSSL at each handshake, also for clients that send no server name."""
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None


def server_context() -> ssl.SSLContext:
    """A context without a certificate, which has what all servers agree on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Go's clients do not resume sessions, and making tickets is a good part of a handshake.
    context.num_tickets = 0
    context.set_alpn_protocols(list(_PROTOCOLS))
    return context


def _version(path: Path) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size
