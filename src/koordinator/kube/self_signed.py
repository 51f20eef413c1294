"""A certificate that a program makes for itself, where none is given: it encrypts, and names nobody.

As upstream's components do. Clients that want to know whom they talk to need a certificate from files.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME: Final = timedelta(days=3650)
"""It says nothing that could become untrue."""
_BACKDATED: Final = timedelta(hours=1)
"""Clocks of clients may be behind."""


@contextmanager
def self_signed_files(now: datetime) -> Iterator[tuple[Path, Path]]:
    """The certificate and its key, in files of this process alone that are gone afterwards."""
    host = socket.gethostname() if socket.gethostname().isascii() else "localhost"
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{host}@{int(now.timestamp())}"[:64])])
    addresses = map(ipaddress.ip_address, ("127.0.0.1", "::1"))
    names = [*map(x509.DNSName, dict.fromkeys([host, "localhost"])), *map(x509.IPAddress, addresses)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with ExitStack() as opened:
        paths = []
        for content in (certificate.public_bytes(serialization.Encoding.PEM), secret):
            # In memory: the root of a container is often read-only, and a key outlives nothing there.
            descriptor = os.memfd_create("koordinator-tls")
            opened.callback(os.close, descriptor)
            os.write(descriptor, content)
            paths.append(Path(f"/proc/self/fd/{descriptor}"))
        yield paths[0], paths[1]
