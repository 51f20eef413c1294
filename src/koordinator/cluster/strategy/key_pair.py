"""Does a TLS key belong to its certificate? The real server warns, in Go's words, when it does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

_BEGIN: Final = re.compile(rb"-----BEGIN ([^\n]{0,200}?)-----\r?\n")
_MOST_NEVER_CLOSED: Final = 20
_KEYS: Final = (
    (RSAPublicKey, RSAPrivateKey),
    (EllipticCurvePublicKey, EllipticCurvePrivateKey),
    (Ed25519PublicKey, Ed25519PrivateKey),
)


def key_pair_complaint(certificate: bytes, key: bytes) -> str:
    """Empty when they match. Both are PEM."""
    certificates, skipped = _blocks(certificate, "CERTIFICATE")
    if not certificates:
        return _no_certificate(skipped)
    keys, skipped = _blocks(key, "PRIVATE KEY")
    if not keys:
        return _no_key(skipped)
    try:
        public = x509.load_pem_x509_certificate(certificates[0]).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "x509: malformed certificate"
    try:
        private = load_pem_private_key(keys[0], None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "tls: failed to parse private key"
    kinds = next((kinds for kinds in _KEYS if isinstance(public, kinds[0])), None)
    if kinds is None:
        return "tls: unknown public key algorithm"
    if not isinstance(private, kinds[1]):
        return "tls: private key type does not match public key type"
    return "" if private.public_key() == public else "tls: private key does not match public key"


def _blocks(text: bytes, kind: str) -> tuple[list[bytes], list[str]]:
    """The blocks whose type ends in ``kind``, and the types of those before the first one."""
    found: list[bytes] = []
    skipped: list[str] = []
    for name, block in _pem(text):
        if name == kind or (kind == "PRIVATE KEY" and name.endswith(f" {kind}")):
            found.append(block + b"\n")
        elif not found:
            skipped.append(name)
    return found, skipped


def _pem(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Types and blocks. A block that is never closed is looked for once for each type, however often it begins."""
    at, never_closed = 0, set()
    while begin := _BEGIN.search(text, at):
        at, closing = begin.end(), b"-----END " + begin[1] + b"-----"
        if closing in never_closed:
            continue
        end = text.find(closing, at)
        if end < 0:
            never_closed.add(closing)
            if len(never_closed) > _MOST_NEVER_CLOSED:
                return
            continue
        at = end + len(closing)
        yield begin[1].decode(errors="replace"), text[begin.start() : at]


def _no_certificate(skipped: list[str]) -> str:
    if not skipped:
        return "tls: failed to find any PEM data in certificate input"
    if len(skipped) == 1 and skipped[0].endswith("PRIVATE KEY"):
        return (
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
            "PEM inputs may have been switched"
        )
    listed = " ".join(skipped)
    return (
        'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of the following '
        f"types: [{listed}]"
    )


def _no_key(skipped: list[str]) -> str:
    if not skipped:
        return "tls: failed to find any PEM data in key input"
    if skipped == ["CERTIFICATE"]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    listed = " ".join(skipped)
    return (
        'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after skipping PEM blocks of the '
        f"following types: [{listed}]"
    )
