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

    ``client_authority`` is a file with what ``trust`` is given, and is read again with the others.
    """

    def __init__(self, certificate: Path, key: Path, client_authority: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._current: ssl.SSLContext | None = None
        self._version: _Version = ()
        self._authority = ""
        self.client_authority = client_authority
        self.context = server_context()
        self.context.sni_callback = self._present

    @classmethod
    def in_folder(cls, folder: Path, client_authority: Path | None = None) -> Self:
        """Return the pair under the file names of a mounted Secret."""
        return cls(folder / "tls.crt", folder / "tls.key", client_authority)

    def reload(self) -> bool:
        """Load the files. Returns True if they differ from those in use.

        Raises ServingCertificateError if they are unusable; the previous certificate then stays in use.
        """
        # Each on its own: what is wrong with the one must not keep the other from its rotation.
        is_pair_new = self._reload_pair()
        is_trust_new = self.client_authority is not None and self._trust_file(self.client_authority)
        return is_pair_new or is_trust_new

    def _trust_file(self, path: Path) -> bool:
        try:
            authority = path.read_text("ascii")
        except (OSError, ValueError) as error:
            raise ServingCertificateError(f"{path} cannot be used as the authority of clients: {error}") from error
        if not authority.strip():
            raise ServingCertificateError(f"{path} cannot be used as the authority of clients: it is empty")
        return self.trust(authority, str(path))

    def _reload_pair(self) -> bool:
        certificate, key = self._certificate, self._key
        try:
            version = (_version(certificate), _version(key))
            if version == self._version:
                return False
            context = server_context()
            context.load_cert_chain(certificate, key)
            if self._authority:
                _ask_clients(context, self._authority)
        except (OSError, ValueError) as error:
            raise ServingCertificateError(f"{certificate} and {key} cannot be served: {error}") from error
        self._current, self._version = context, version
        return True

    def trust(self, authority: str, source: str = "the authority of clients") -> bool:
        """Ask clients for a certificate of this authority (PEM; several are allowed), which they need not have. Returns
        True if it differs from that before. ``source`` is where it comes from.

        Raises ServingCertificateError if it is unusable; that before then stays in use.
        """
        if authority == self._authority:
            return False
        before, self._authority = self._authority, authority
        version, self._version = self._version, ()
        try:
            _ask_clients(self.context, authority)
            self._reload_pair()
        except (ssl.SSLError, ValueError, ServingCertificateError) as error:
            self._authority, self._version = before, version
            raise ServingCertificateError(f"{source} cannot be used: {error}") from error
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


def _ask_clients(context: ssl.SSLContext, authority: str) -> None:
    # The handshake goes by what the first context asks for, and verifies by the one that is presented.
    context.load_verify_locations(cadata=authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    # A resumed session would bring a certificate that nobody has verified by the authority of now.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def _version(path: Path) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size
