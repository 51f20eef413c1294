"""Addresses to listen on, as Go programs are told them."""

from __future__ import annotations

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.base.listen_address import NOWHERE, ListenAddress, parse_listen_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ListenAddress("", 8080)),
        ("127.0.0.1:80", ListenAddress("127.0.0.1", 80)),
        ("[::1]:80", ListenAddress("::1", 80)),
        ("0", NOWHERE),
        ("", NOWHERE),
        ("127.0.0.1:0", NOWHERE),
    ],
)
def test_an_address_is_read(text: str, address: ListenAddress) -> None:
    assert parse_listen_address("metricsBindAddress", text) == address


@pytest.mark.parametrize("text", ["8080", "localhost", "::1:80", "host:http", "host:65536", "host:-1", "host:²"])
def test_what_is_no_address_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"metricsBindAddress: .*write HOST:PORT"):
        parse_listen_address("metricsBindAddress", text)


@pytest.mark.parametrize("text", [":8080", "127.0.0.1:80", "[::1]:80", "0"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_listen_address("--addr", text)) == text
