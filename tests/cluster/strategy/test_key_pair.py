"""TLS keys and certificates that do not belong together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from koordinator.cluster.strategy.secret import key_pair_error

_Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def _key(key: _Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate(key: _Key) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=1))
    algorithm = hashes.SHA256() if isinstance(key, ec.EllipticCurvePrivateKey) else None
    return builder.sign(key, algorithm).public_bytes(Encoding.PEM)


_CURVE, _OTHER, _EDWARDS = (
    ec.generate_private_key(ec.SECP256R1()),
    ec.generate_private_key(ec.SECP256R1()),
    ed25519.Ed25519PrivateKey.generate(),
)
_PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
_SWITCHED = (
    "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
    "PEM inputs may have been switched"
)


@pytest.mark.parametrize("key", [_CURVE, _EDWARDS], ids=["curve", "edwards"])
def test_a_pair(key: _Key) -> None:
    assert key_pair_error(_certificate(key), _PARAMETERS + _key(key)) == ""


@pytest.mark.parametrize(
    ("certificate", "key", "detail"),
    [
        (b"", b"", "tls: failed to find any PEM data in certificate input"),
        (_certificate(_CURVE), b"x", "tls: failed to find any PEM data in key input"),
        (_key(_CURVE), _certificate(_CURVE), _SWITCHED),
        (
            _certificate(_CURVE),
            _certificate(_CURVE),
            "tls: found a certificate rather than a key in the PEM for the private key",
        ),
        (
            _PARAMETERS,
            b"",
            'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of the '
            "following types: [EC PARAMETERS]",
        ),
        (
            _certificate(_CURVE),
            _PARAMETERS,
            'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after skipping PEM blocks '
            "of the following types: [EC PARAMETERS]",
        ),
        (_certificate(_CURVE), _key(_OTHER), "tls: private key does not match public key"),
        (_certificate(_CURVE), _key(_EDWARDS), "tls: private key type does not match public key type"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            _key(_CURVE),
            "x509: malformed certificate",
        ),
    ],
)
def test_no_pair(certificate: bytes, key: bytes, detail: str) -> None:
    assert key_pair_error(certificate, key) == detail
