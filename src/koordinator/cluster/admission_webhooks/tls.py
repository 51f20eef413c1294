"""TLS towards webhook servers: whom to trust, and whose certificate it was when a name does not fit."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from dataclasses import dataclass
from typing import Final

from koordinator.base.errors import KoordinatorError

_LOOK_SECONDS: Final = 2.0


class BundleError(KoordinatorError):
    """A ``caBundle`` that holds no certificates."""


@dataclass(frozen=True, slots=True)
class CertifiedNames:
    """What the certificate of a server is valid for."""

    addresses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def client_context(authorities: str) -> ssl.SSLContext:
    """``authorities`` is base64 of PEM; without any those of this machine are trusted. Raises BundleError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not authorities:
        context.load_default_certs()
        return context
    # Like the real server: a certificate of the bundle is trusted for itself, whether it is an authority or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=base64.b64decode(authorities).decode())
    except (ssl.SSLError, binascii.Error, UnicodeDecodeError) as error:
        raise BundleError("unable to load root certificates: unable to parse bytes as PEM block") from error
    return context


async def certified_names(host: str, port: int, authorities: str) -> CertifiedNames:
    """Of a server whose certificate did not fit: looks once more, for the message alone, and sends nothing."""
    context = client_context(authorities)
    context.check_hostname = False
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except OSError:
        return CertifiedNames()
    try:
        found = (writer.get_extra_info("peercert") or {}).get("subjectAltName", ())
    finally:
        writer.close()
    addresses = tuple(value for kind, value in found if kind == "IP Address")
    return CertifiedNames(addresses, tuple(value for kind, value in found if kind == "DNS"))
