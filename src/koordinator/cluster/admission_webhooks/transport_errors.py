"""Why a connection or an answer failed, in the words of the real server's HTTP client.

They are what a person searches the web for, and what the real server prints for the same fault.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import ssl
from collections.abc import Sequence
from typing import Final

import aiohttp

_CERTIFICATE_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_NAME_MISMATCHES: Final = (62, 64)
"""Numbers of OpenSSL's verification errors (X509_V_ERR_…)."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_UNVERIFIED: Final = "tls: failed to verify certificate: x509"
DEADLINE: Final = "context deadline exceeded"


def explain(error: Exception) -> str:
    """One line for an exception of aiohttp, asyncio or ssl."""
    if isinstance(error, TimeoutError):
        return DEADLINE
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate(error.certificate_error)
    if isinstance(error, aiohttp.ClientSSLError):
        return _tls(error.os_error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"dial tcp {_joined(error.host, error.port or 0)}: connect: {_system(error.os_error)}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, OSError):
        return _system(error)
    return str(error) or type(error).__name__


def status_line(code: int, message: str) -> str:
    """What an HTTP status other than success means; ``message`` is the body where that is text."""
    if code >= 500 and code not in (503, 504):
        return f'an error on the server ("{message}") has prevented the request from succeeding'
    unknown = f"the server responded with the status code {code} but did not return more information"
    return _STATUS.get(code, message if code in (403, 406, 415) else unknown)


_STATUS: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


def wrong_name(server_name: str, addresses: Sequence[str], names: Sequence[str]) -> str:
    """A good certificate that is somebody else's: what it is valid for, of the kind that was asked for."""
    if _is_address(server_name):
        if not addresses:
            why = f"cannot validate certificate for {server_name} because it doesn't contain any IP SANs"
            return f"{_UNVERIFIED}: {why}"
        valid = addresses
    elif not names:
        return f"{_UNVERIFIED}: certificate is not valid for any names, but wanted to match {server_name}"
    else:
        valid = names
    return f"{_UNVERIFIED}: certificate is valid for {', '.join(valid)}, not {server_name}"


def is_wrong_name(error: Exception) -> bool:
    """Whether the certificate is good but for the name in it."""
    if not isinstance(error, aiohttp.ClientConnectorCertificateError):
        return False
    cause = error.certificate_error
    return isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code in _NAME_MISMATCHES


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _certificate(error: Exception) -> str:
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
    if code in (_CERTIFICATE_EXPIRED, _NOT_YET_VALID):
        why = "certificate has expired or is not yet valid"
    else:
        why = "certificate signed by unknown authority"
    return f"{_UNVERIFIED}: {why}"


def _tls(error: OSError) -> str:
    reason = getattr(error, "reason", None) or str(error)
    if any(mark in str(reason) for mark in _NO_TLS):
        return "http: server gave HTTP response to HTTPS client"
    return f"tls: {reason}"


def _system(error: OSError) -> str:
    if error.errno == errno.ECONNRESET:
        return "read: connection reset by peer"
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
