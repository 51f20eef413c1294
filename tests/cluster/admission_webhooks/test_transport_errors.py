"""The words for what goes wrong below HTTP."""

from __future__ import annotations

import errno

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from koordinator.cluster.admission_webhooks.connection import explain, status_line, wrong_name

_X509 = "tls: failed to verify certificate: x509: "


def _refused(number: int, host: str = "127.0.0.1") -> aiohttp.ClientConnectorError:
    key = ConnectionKey(host, 9443, True, True, None, None, None)
    return aiohttp.ClientConnectorError(key, OSError(number, "why"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "context deadline exceeded"),
        (_refused(errno.ECONNREFUSED), "dial tcp 127.0.0.1:9443: connect: connection refused"),
        (_refused(errno.ECONNREFUSED, "::1"), "dial tcp [::1]:9443: connect: connection refused"),
        (_refused(errno.EHOSTUNREACH), "dial tcp 127.0.0.1:9443: connect: no route to host"),
        (aiohttp.ServerDisconnectedError(), "EOF"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "read: connection reset by peer"),
        (aiohttp.ClientPayloadError("cut short"), "cut short"),
    ],
)
def test_an_error_is_reported_as_the_real_server_reports_it(error: Exception, words: str) -> None:
    assert explain(error) == words


def test_a_host_that_nobody_knows() -> None:
    key = ConnectionKey("nowhere.invalid", 443, True, True, None, None, None)
    error = aiohttp.ClientConnectorDNSError(key, OSError(None, "unknown"))
    assert explain(error) == "dial tcp: lookup nowhere.invalid: no such host"


@pytest.mark.parametrize(
    ("name", "addresses", "names", "words"),
    [
        ("a.b.svc", (), ("x.y.svc", "z"), "certificate is valid for x.y.svc, z, not a.b.svc"),
        ("a.b.svc", ("127.0.0.1",), (), "certificate is not valid for any names, but wanted to match a.b.svc"),
        ("127.0.0.1", ("127.0.0.2",), ("x",), "certificate is valid for 127.0.0.2, not 127.0.0.1"),
        (
            "127.0.0.1",
            (),
            ("x",),
            "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
        ),
    ],
)
def test_a_wrong_name(name: str, addresses: tuple[str, ...], names: tuple[str, ...], words: str) -> None:
    assert wrong_name(name, addresses, names) == f"{_X509}{words}"


def test_a_forbidding_webhook_is_quoted() -> None:
    assert status_line(403, "not you") == "not you"
