"""TLS towards the API server: contexts built from files or from data, and rebuilt when the files are rotated."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from koordinator.base.clock import Clock
from koordinator.kube.errors import CredentialError

_CHECK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A client certificate and its private key: PEM data, or files that may be rotated."""

    certificate_file: str = ""
    key_file: str = ""
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class TLSSettings:
    """The trusted CA and the client's certificate. Without a CA, those of the machine are trusted."""

    authority_file: str = ""
    authority: bytes = field(default=b"", repr=False)
    insecure: bool = False
    key_pair: KeyPair | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The files from which a context is built."""
        pair = self.key_pair or KeyPair()
        return tuple(path for path in (self.authority_file, pair.certificate_file, pair.key_file) if path)


def build_context(settings: TLSSettings, key_pair: KeyPair | None = None) -> ssl.SSLContext:
    """Return a client context for TLS 1.2 or later. ``key_pair`` replaces that of the settings.

    Raises CredentialError naming the unusable certificate or key.
    """
    # Not ssl.create_default_context: with newer Pythons it rejects the CA certificates that kubeadm and k3s generate.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        _trust(context, settings)
    pair = key_pair or settings.key_pair
    if pair is not None:
        _present(context, pair)
    return context


def _trust(context: ssl.SSLContext, settings: TLSSettings) -> None:
    try:
        if settings.authority:
            context.load_verify_locations(cadata=settings.authority.decode("ascii"))
        elif settings.authority_file:
            context.load_verify_locations(cafile=settings.authority_file)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        what = "certificate-authority-data" if settings.authority else settings.authority_file
        raise CredentialError(f"{what}: not a usable certificate authority: {_reason(error)}") from error


def _present(context: ssl.SSLContext, pair: KeyPair) -> None:
    with (
        _as_file(pair.certificate, pair.certificate_file) as certificate,
        _as_file(pair.key, pair.key_file) as key,
    ):
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            what = pair.certificate_file or "client-certificate-data"
            raise CredentialError(
                f"{what} and {pair.key_file or 'client-key-data'}: not a usable pair: {_reason(error)}"
            ) from error


def _no_password() -> str:
    """Without this callback, OpenSSL would prompt on the terminal, and a program would hang."""
    raise ValueError("the private key is encrypted")


@contextmanager
def _as_file(data: bytes, path: str) -> Iterator[str]:
    """Yield the path of a file with the data (in memory if possible), because OpenSSL loads keys from files only."""
    if not data:
        yield path
    elif hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("client-credential")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


class RotatingContext:
    """The current context; checks once a minute whether its files have changed."""

    def __init__(self, settings: TLSSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._key_pair: KeyPair | None = None
        self._seen = self._versions()
        self._check_at = clock.monotonic() + _CHECK_SECONDS
        self.context = build_context(settings)

    def present(self, key_pair: KeyPair | None) -> None:
        """Use another client certificate from now on."""
        self.context = build_context(self._settings, key_pair)
        self._key_pair = key_pair

    def refresh(self) -> bool:
        """Rebuild the context if its files have changed since the last check. Returns True if it is a new one.

        Raises CredentialError while certificate and key do not match; the old context remains.
        """
        now = self._clock.monotonic()
        if now < self._check_at or not self._settings.files:
            return False
        self._check_at = now + _CHECK_SECONDS
        versions = self._versions()
        if versions == self._seen:
            return False
        self.context = build_context(self._settings, self._key_pair)
        self._seen = versions
        return True

    def _versions(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_version(path) for path in self._settings.files)


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
