"""Long texts neither keep a check busy nor make it fail."""

from __future__ import annotations

from datetime import timedelta

import pytest

from koordinator.api.quantity import Quantity, QuantityError
from koordinator.api.string_formats import FORMATS
from koordinator.base.durations import DurationError, parse_duration
from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.request import write_options
from koordinator.cluster.strategy.secret import key_pair_error
from koordinator.cluster.verbs.selection import parse_label_selector

LONG = (
    "(" * 20_000, ":" * 20_000, "<" * 20_000, "a@" * 20_000, "9" * 20_000, "a" * 20_000, "1.1.1.1/" + "9" * 20_000,
    "2026-01-01T00:00:00." + "1" * 20_000 + "Z", "1s" * 20_000, "\\" * 20_000, "%" * 20_000, "." * 20_000,
)  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_says_yes_or_no_to_any_text(name: str) -> None:
    for text in LONG:
        FORMATS[name](text)


@pytest.mark.parametrize("text", ["1.1.1.1/" + "9" * 5000, "1.1.1.1/33", "1.1.1.1/"])
def test_no_prefix_length_is_no_cidr(text: str) -> None:
    assert not FORMATS["cidr"](text)


@pytest.mark.parametrize("text", ["9" * 5000 + "s", "9" * 150 + "s", "10000000h"])
def test_a_duration_that_go_cannot_hold_is_none(text: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(text)


def test_a_long_duration_is_one() -> None:
    assert parse_duration("2000000h") == timedelta(hours=2_000_000)


@pytest.mark.parametrize("text", ["9" * 5000, "0." + "1" * 5000, "1" + "0" * 5000 + "Ki"])
def test_an_endless_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="characters"):
        Quantity.parse(text)


def test_an_endless_number_in_a_selector_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        parse_label_selector("a>" + "9" * 5000)
    assert refused.value.code == 400


def test_a_create_in_an_endless_time_is_refused() -> None:
    with pytest.raises(ApiError, match="invalid timeout"):
        write_options("POST", {"timeout": "9" * 5000 + "s"}, {}, 0.0)


@pytest.mark.parametrize(
    "pem",
    [
        b"-----BEGIN A-----\n" * 50_000,
        b"-----BEGIN " * 80_000,
        b"".join(b"-----BEGIN %d-----\n" % number for number in range(40_000)),
    ],
)
def test_pem_that_begins_and_never_ends_is_read_once(pem: bytes) -> None:
    assert key_pair_error(pem, pem) == "tls: failed to find any PEM data in certificate input"
