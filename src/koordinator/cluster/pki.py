"""The embedded cluster's own certificate authority and the serving certificate that it signs.

The authority lives in the data folder and is reused, so that a kubeconfig stays good across restarts and whatever the
clock does; what is near its end is made anew. The serving certificate is made anew by the same authority whenever the
clock does not agree with it, which no client notices.
"""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.data_folder import write_private

_LOG = logging.getLogger(__name__)
_AUTHORITY_LIFETIME: Final = timedelta(days=3650)
_SERVING_LIFETIME: Final = timedelta(days=365)
_RENEW_BEFORE: Final = timedelta(days=30)
_CLOCK_SKEW: Final = timedelta(minutes=5)
_AUTHORITY_BACKDATED: Final = timedelta(days=365)
"""An authority of the past is good for nothing else, and clocks that are set back find it valid all the same."""
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


class CertificateError(KoordinatorError):
    """The server's certificates cannot be read or written; the text names the file."""


def serving_files(folder: Path, now: datetime) -> ServingFiles:
    """Reuse what is good in ``folder``, make what is missing, broken or about to expire. Raises CertificateError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _load(folder / "ca.crt", folder / "ca.key")
        renewed = authority is None or _ends_soon(authority, now)
        if authority is None or renewed:
            if (folder / "ca.crt").exists():
                _LOG.warning(
                    "%s is broken or about to expire: a new authority is made, which older kubeconfigs do not know",
                    folder / "ca.crt",
                )
            authority = _make_authority(now)
            _store(folder / "ca.crt", folder / "ca.key", authority)
        _log_clock_steps(folder / "ca.crt", authority, now)
        serving = _load(folder / "server.crt", folder / "server.key")
        if serving is None or renewed or not _serves(serving, authority, now):
            _store(folder / "server.crt", folder / "server.key", _make_serving(authority, now))
    except OSError as error:
        raise CertificateError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return ServingFiles(folder / "ca.crt", folder / "server.crt", folder / "server.key")


def renew_serving(folder: Path, now: datetime) -> bool:
    """Make the serving certificate anew if the clock says so, for a server that runs for long; True when it was.

    The authority is left alone: those who trust it now would not trust another one. Raises CertificateError.
    """
    authority = _load(folder / "ca.crt", folder / "ca.key")
    serving = _load(folder / "server.crt", folder / "server.key")
    if authority is None or (serving is not None and _serves(serving, authority, now)):
        return False
    try:
        _store(folder / "server.crt", folder / "server.key", _make_serving(authority, now))
    except OSError as error:
        raise CertificateError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return True


def _ends_soon(pair: _Pair, now: datetime) -> bool:
    return now >= pair.certificate.not_valid_after_utc - _RENEW_BEFORE


def _serves(serving: _Pair, authority: _Pair, now: datetime) -> bool:
    """A certificate of the future is made anew: all its clients need is that the authority signed it."""
    begun = serving.certificate.not_valid_before_utc <= now
    return begun and not _ends_soon(serving, now) and _signed_by(serving.certificate, authority.certificate)


def _log_clock_steps(path: Path, authority: _Pair, now: datetime) -> None:
    """An authority of the future stays: the clock was set back, and every kubeconfig names this authority."""
    begin = authority.certificate.not_valid_before_utc
    if now < begin:
        _LOG.warning(
            "%s is valid from %s on, and the clock says %s: it is kept, since kubeconfigs name it, but clients refuse "
            "it until then; set the clock right",
            path,
            begin.isoformat(),
            now.isoformat(),
        )


def _load(certificate: Path, key: Path) -> _Pair | None:
    """None when there is no such pair, or a broken one. Raises CertificateError when that cannot be determined."""
    try:
        pair = _Pair(
            x509.load_pem_x509_certificate(certificate.read_bytes()),
            _as_elliptic(serialization.load_pem_private_key(key.read_bytes(), None)),
        )
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise CertificateError(f"{error.filename} cannot be read: {error.strerror}") from error
    return pair if pair.certificate.public_key() == pair.key.public_key() else None


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
        _builder(name, name, key, now, _AUTHORITY_LIFETIME, _AUTHORITY_BACKDATED)
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
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lifetime: timedelta,
    backdated: timedelta = _CLOCK_SKEW,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - backdated)
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
