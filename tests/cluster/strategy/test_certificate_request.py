"""Requests for certificates, and certificates, that the library for X.509 does not read."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from koordinator.cluster.strategy.certificate_request import CertificateRequestStrategy
from tests.cluster.certificate_requests import CERTIFICATE, REQUEST, request_spec

_OTHER_VERSION = (b"\x02\x01\x00", b"\x02\x01\x05")
_NO_TEXT = (b"jane", b"\xff\xff\xff\xff")


def _pem(kind: str, der: bytes) -> str:
    text = f"-----BEGIN {kind}-----\n{base64.b64encode(der).decode()}\n-----END {kind}-----\n"
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("change", [_OTHER_VERSION, _NO_TEXT], ids=["version", "subject"])
def test_a_request_that_cannot_be_read_is_refused(change: tuple[bytes, bytes]) -> None:
    der = x509.load_pem_x509_csr(base64.b64decode(REQUEST)).public_bytes(Encoding.DER).replace(*change, 1)
    request = _pem("CERTIFICATE REQUEST", der)
    obj = {"metadata": {"name": "jane"}, "spec": {**request_spec(), "request": request}, "status": {}}
    (cause,) = CertificateRequestStrategy().validate(obj, None)
    assert (cause.field, cause.reason) == ("spec.request", "FieldValueInvalid")


def test_a_certificate_of_an_unknown_version_is_none() -> None:
    der = x509.load_pem_x509_certificate(base64.b64decode(CERTIFICATE)).public_bytes(Encoding.DER)
    obj = {"metadata": {"name": "jane", "resourceVersion": "1"}, "spec": request_spec(), "status": {}}
    signed = _pem("CERTIFICATE", der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07", 1))
    causes = CertificateRequestStrategy().validate_status({**obj, "status": {"certificate": signed}}, obj)
    assert [cause.field for cause in causes] == ["status.certificate"]
