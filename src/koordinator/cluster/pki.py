"""The embedded cluster's own certificate authority and the serving certificate that it signs.

The authority lives in the data folder and is reused, so that a kubeconfig stays good across restarts; whatever is near
its end is made anew at start.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_LIFETIME: Final = timedelta(days=3650)
_SERVING_LIFETIME: Final = timedelta(days=365)
_RENEW_BEFORE: Final = timedelta(days=30)
_CLOCK_SKEW: Final = timedelta(minutes=5)
_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ADDRESSES: Final = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class _Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class ServingFiles:
    """Paths of PEM files, all readable by their owner alone."""

    authority: Path
    certificate: Path
    key: Path


def serving_files(folder: Path, now: datetime) -> ServingFiles:
    """Reuse what is valid in ``folder``, make what is missing, broken or about to expire."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _load(folder / "ca.crt", folder / "ca.key", now)
    renewed = authority is None
    if authority is None:
        authority = _make_authority(now)
        _store(folder / "ca.crt", folder / "ca.key", authority)
    serving = _load(folder / "server.crt", folder / "server.key", now)
    if serving is None or renewed or not _signed_by(serving.certificate, authority.certificate):
        _store(folder / "server.crt", folder / "server.key", _make_serving(authority, now))
    return ServingFiles(folder / "ca.crt", folder / "server.crt", folder / "server.key")


def _load(certificate: Path, key: Path, now: datetime) -> _Pair | None:
    try:
        pair = _Pair(
            x509.load_pem_x509_certificate(certificate.read_bytes()),
            _as_elliptic(serialization.load_pem_private_key(key.read_bytes(), None)),
        )
    except (FileNotFoundError, ValueError):
        return None
    usable = pair.certificate.not_valid_before_utc <= now < pair.certificate.not_valid_after_utc - _RENEW_BEFORE
    return pair if usable and pair.certificate.public_key() == pair.key.public_key() else None


def _as_elliptic(key: object) -> ec.EllipticCurvePrivateKey:
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not one of our keys")  # noqa: TRY004 - a bad file like any other
    return key


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _make_authority(now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("koordinator-embedded-ca")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    builder = (
        _builder(name, name, key, now, _AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _Pair(builder.sign(key, hashes.SHA256()), key)


def _make_serving(authority: _Pair, now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(name) for name in _NAMES]
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(_name("kube-apiserver"), authority.certificate.subject, key, now, _SERVING_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    return _Pair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _store(certificate: Path, key: Path, pair: _Pair) -> None:
    private = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(key, private)
    write_private(certificate, pair.certificate.public_bytes(serialization.Encoding.PEM))


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step by one that its owner alone reads, never readable by others in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
