"""The authority and the serving certificate of the webhooks: making and checking them.

The certificates are like those of the original, so that either program can take over the other's: RSA keys as PKCS #1,
an authority named ``webhook-cert-ca``, ten years for both. A certificate counts as valid only while it has another half
a year left, so that replacing it is never urgent.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_KEY_BITS: Final = 2048
_LIFETIME: Final = timedelta(days=3650)
_CLOCK_SKEW: Final = timedelta(hours=1)
_VALID_FOR_MONTHS: Final = 6
_AUTHORITY_VALID_FOR_MONTHS: Final = 12
_AUTHORITY_NAME: Final = "webhook-cert-ca"
_BROKEN: Final = (ValueError, TypeError, UnsupportedAlgorithm)
"""The exceptions of the library for PEM that is no certificate or key, or one of an unsupported kind."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM data; empty where it does not exist."""

    authority_key: bytes = field(default=b"", repr=False)
    authority: bytes = b""
    key: bytes = field(default=b"", repr=False)
    certificate: bytes = b""


def make_certificates(name: str, now: datetime, reusable: Certificates | None = None) -> Certificates:
    """A serving certificate for ``name``, issued by the authority of ``reusable`` where that has a year left, else by a
    new one.

    Takes a quarter of a second: two RSA keys.
    """
    authority = _reusable_authority(reusable, now) if reusable is not None else None
    authority_key, authority_certificate = authority or _make_authority(now)
    key = _make_key()
    certificate = _make_leaf(name, key, authority_certificate, authority_key, now)
    return Certificates(
        authority_key=_key_pem(authority_key),
        authority=authority_certificate.public_bytes(serialization.Encoding.PEM),
        key=_key_pem(key),
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
    )


def fault(certificates: Certificates, name: str, now: datetime) -> str:
    """Why these certificates must be replaced, or "" if they are valid for ``name`` for another six months."""
    try:
        leaf = x509.load_pem_x509_certificates(certificates.certificate)[0]
        key = _public_key(certificates.key)
        authorities = x509.load_pem_x509_certificates(certificates.authority)
    except _BROKEN:
        return "the certificate, its key or the authority's certificate is missing or cannot be read"
    if key != leaf.public_key():
        return "the key is not that of the certificate"
    if not _is_for(leaf, name):
        return f"the certificate is not for {name}"
    if not _serves(leaf):
        return "the certificate is not one for servers"
    if wrong := _out_of_time(leaf, now):
        return f"the certificate {wrong}"
    issuers = [authority for authority in authorities if _issued(leaf, authority)]
    if not issuers:
        return "the certificate was not issued by the authority"
    if all(_out_of_time(authority, now) for authority in issuers):
        return f"the authority {_out_of_time(issuers[0], now)}"
    return ""


@lru_cache(maxsize=2)
def _public_key(pem: bytes) -> PublicKeyTypes:
    """The public key of a private key. Cached, since checking an RSA key takes a tenth of a second in which nothing
    else runs, and certificates are checked every minute."""
    return serialization.load_pem_private_key(pem, None).public_key()


def _out_of_time(certificate: x509.Certificate, now: datetime) -> str:
    """The end of a sentence on why the certificate is not valid for the next six months, or "" if it is."""
    if now < certificate.not_valid_before_utc:
        return f"is not valid yet: it begins {certificate.not_valid_before_utc:%Y-%m-%d %H:%M}"
    if add_months(now, _VALID_FOR_MONTHS) > certificate.not_valid_after_utc:
        return f"is not valid in six months: it ends {certificate.not_valid_after_utc:%Y-%m-%d}"
    return ""


def add_months(moment: datetime, months: int) -> datetime:
    """The same day that many months later; a day that the month does not have overflows into the next month, as in
    Go."""
    years, month = divmod(moment.month - 1 + months, 12)
    first = moment.replace(year=moment.year + years, month=month + 1, day=1)
    return first + timedelta(days=moment.day - 1)


def _reusable_authority(found: Certificates, now: datetime) -> tuple[rsa.RSAPrivateKey, x509.Certificate] | None:
    try:
        bundle = x509.load_pem_x509_certificates(found.authority)
        key = serialization.load_pem_private_key(found.authority_key, None)
    except _BROKEN:
        return None
    if len(bundle) != 1 or not isinstance(key, rsa.RSAPrivateKey) or key.public_key() != bundle[0].public_key():
        return None
    authority, end = bundle[0], add_months(now, _AUTHORITY_VALID_FOR_MONTHS)
    if not authority.not_valid_before_utc <= now <= end <= authority.not_valid_after_utc:
        return None
    return (key, authority) if _issued(authority, authority) else None


def _make_authority(now: datetime) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    key = _make_key()
    name = _common_name(_AUTHORITY_NAME)
    builder = (
        _builder(name, name, key, now - _CLOCK_SKEW, now)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_AUTHORITY_NAME)]), critical=False)
    )
    return key, builder.sign(key, hashes.SHA256())


def _make_leaf(
    name: str, key: rsa.RSAPrivateKey, authority: x509.Certificate, authority_key: rsa.RSAPrivateKey, now: datetime
) -> x509.Certificate:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(_common_name(name), authority.subject, key, authority.not_valid_before_utc, now)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), _general_name(name)]), critical=False)
    )
    return builder.sign(authority_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, not_before: datetime, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(now + _LIFETIME)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _make_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)


def _key_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _common_name(name: str) -> x509.Name:
    # The field holds 64 characters; it is not verified, the names are in the extension.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# These three rules are not left to ``cryptography.x509.verification``. It rejects authorities of X.509 version 1
# (``openssl x509 -req -signkey``) and host names with an underscore. Its default policy also rejects authorities
# without keyUsage (``openssl req -x509``), and serving certificates for any extended key usage. Go's clients, such as
# the API server, accept all of these: working certificates would be replaced.


def _is_for(certificate: x509.Certificate, name: str) -> bool:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *_BROKEN):
        return False
    wanted = _general_name(name)
    if isinstance(wanted, x509.IPAddress):
        return wanted.value in names.get_values_for_type(x509.IPAddress)
    host = name.lower().rstrip(".")
    accepted = (host, f"*.{host.partition('.')[2]}")
    return any(given.lower() in accepted for given in names.get_values_for_type(x509.DNSName))


def _serves(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.SERVER_AUTH in usage or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usage


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, *_BROKEN):
        return False
    return True
