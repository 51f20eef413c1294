"""When certificates are good, and what those that are made are like."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koordinator.manager.webhook.certificates import Certificates, add_months, fault, make_certificates
from tests.manager.webhook.making import NAME, NOW, certificates

YEARS = timedelta(days=365)


def leaf(of: Certificates) -> x509.Certificate:
    return x509.load_pem_x509_certificate(of.certificate)


def test_a_certificate_is_as_the_original_makes_it() -> None:
    made = certificates()
    found, authority = leaf(made), x509.load_pem_x509_certificate(made.authority)
    assert found.subject.rfc4514_string() == f"CN={NAME}"
    assert authority.subject.rfc4514_string() == found.issuer.rfc4514_string() == "CN=webhook-cert-ca"
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", NAME]
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert found.not_valid_before_utc == authority.not_valid_before_utc
    assert found.not_valid_after_utc == authority.not_valid_after_utc == NOW + 10 * YEARS
    key = serialization.load_pem_private_key(made.key, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    assert key.key_size == 2048
    for pem in (made.key, made.authority_key):
        assert pem.startswith(b"-----BEGIN RSA PRIVATE KEY-----")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_is_certified_as_one(address: str) -> None:
    made = certificates(address)
    names = leaf(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(address)]
    assert fault(made, address, NOW) == ""
    assert fault(made, NAME, NOW) == f"the certificate is not for {NAME}"


@pytest.mark.parametrize(
    ("age", "wrong"),
    [
        (timedelta(0), ""),
        (timedelta(days=3650 - 190), ""),
        (timedelta(days=3650 - 170), "the certificate is not valid in six months: it ends 2036-01-13"),
        (timedelta(days=4000), "the certificate is not valid in six months: it ends 2036-01-13"),
        (timedelta(days=-365), "the certificate is not valid yet: it begins 2026-01-15 11:00"),
        (timedelta(hours=-1), ""),
        (timedelta(minutes=-61), "the certificate is not valid yet: it begins 2026-01-15 11:00"),
    ],
)
def test_a_certificate_is_replaced_half_a_year_before_its_end(age: timedelta, wrong: str) -> None:
    assert fault(certificates(), NAME, NOW + age) == wrong


def test_what_a_replica_made_whose_clock_is_ahead_is_replaced_with_its_authority() -> None:
    """An API server whose clock is right would refuse it, and all that its authority signs, until then."""
    ahead = certificates(now=NOW + timedelta(hours=3))
    assert fault(ahead, NAME, NOW) == "the certificate is not valid yet: it begins 2026-01-15 14:00"
    made = make_certificates(NAME, NOW, ahead)
    assert made.authority != ahead.authority
    assert fault(made, NAME, NOW) == ""
    assert fault(made, NAME, NOW + timedelta(hours=3)) == "", "the one that is ahead leaves it"


def test_a_key_is_proven_once_since_nothing_else_runs_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = serialization.load_pem_private_key

    def counted(*arguments: Any) -> Any:
        loaded.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(serialization, "load_pem_private_key", counted)
    made = make_certificates(NAME, NOW, certificates(which=2))
    loaded.clear()
    assert [fault(made, NAME, NOW) for _ in range(3)] == [""] * 3
    assert len(loaded) == 1


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"certificate": b""}, "missing"),
        ({"key": b""}, "missing"),
        ({"authority": b""}, "missing"),
        ({"certificate": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, "missing"),
        ({"key": b"no key"}, "missing"),
        ({"key": certificates(which=1).key}, "the key is not that of the certificate"),
        ({"authority": certificates(which=1).authority}, "not issued by the authority"),
    ],
)
def test_what_does_not_fit_together_is_replaced(change: dict[str, bytes], wrong: str) -> None:
    assert wrong in fault(replace(certificates(), **change), NAME, NOW)


def test_an_authority_may_be_one_of_several() -> None:
    made = certificates()
    both = replace(made, authority=certificates(which=1).authority + made.authority)
    assert fault(both, NAME, NOW) == ""


def test_the_key_of_the_authority_is_only_needed_to_make_more() -> None:
    assert fault(replace(certificates(), authority_key=b""), NAME, NOW) == ""


def test_the_authority_stays_when_only_the_name_changes() -> None:
    made = make_certificates("hooks.example", NOW, certificates())
    assert made.authority == certificates().authority
    assert made.certificate != certificates().certificate
    assert fault(made, "hooks.example", NOW) == ""


@pytest.mark.parametrize(
    ("found", "age"),
    [
        (certificates(), timedelta(days=3650 - 300)),
        (replace(certificates(), authority_key=b""), timedelta(0)),
        (replace(certificates(), authority_key=certificates(which=1).authority_key), timedelta(0)),
        (replace(certificates(), authority=certificates().authority * 2), timedelta(0)),
    ],
    ids=["less than a year left", "no key", "key of another", "a bundle of two"],
)
def test_an_authority_that_cannot_sign_for_long_is_replaced(found: Certificates, age: timedelta) -> None:
    made = make_certificates(NAME, NOW + age, found)
    assert made.authority != found.authority
    assert fault(made, NAME, NOW + age) == ""


@pytest.mark.parametrize(
    ("moment", "months", "expected"),
    [
        (datetime(2026, 1, 15, tzinfo=UTC), 6, datetime(2026, 7, 15, tzinfo=UTC)),
        (datetime(2026, 8, 31, 5, tzinfo=UTC), 6, datetime(2027, 3, 3, 5, tzinfo=UTC)),
        (datetime(2027, 8, 31, tzinfo=UTC), 6, datetime(2028, 3, 2, tzinfo=UTC)),
        (datetime(2026, 12, 1, tzinfo=UTC), 6, datetime(2027, 6, 1, tzinfo=UTC)),
        (datetime(2028, 2, 29, tzinfo=UTC), 12, datetime(2029, 3, 1, tzinfo=UTC)),
    ],
)
def test_months_are_counted_as_in_go(moment: datetime, months: int, expected: datetime) -> None:
    assert add_months(moment, months) == expected


def test_certificates_that_go_accepts_are_kept_although_the_library_would_not_verify_them() -> None:
    """As `openssl req -x509` makes an authority: without keyUsage. The serving certificate is for any usage."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    begin, end = NOW - timedelta(days=1), NOW + timedelta(days=3650)

    def signed(public: ec.EllipticCurvePublicKey, extension: x509.ExtensionType, *more: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder(issuer, issuer, public, x509.random_serial_number(), begin, end)
        for each in (extension, *more):
            builder = builder.add_extension(each, critical=False)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])
    names = x509.SubjectAlternativeName([x509.DNSName("webhook_host")])
    found = Certificates(
        authority=signed(authority_key.public_key(), x509.BasicConstraints(ca=True, path_length=None)),
        key=private,
        certificate=signed(key.public_key(), names, usage),
    )
    assert fault(found, "webhook_host", NOW) == ""
