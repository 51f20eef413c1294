"""Bytes that client-go v0.35 wrote (client_go/main.go) decode to the JSON that it writes for the same objects."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import canonicalize
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.errors import ApiError
from koordinator.cluster.protobuf.decoding import decode

LINES = (Path(__file__).parent / "client_go" / "objects.jsonl").read_text().splitlines()
RECORDED = [json.loads(line) for line in LINES]
BODIES = [base64.b64decode(entry["base64"]) for entry in RECORDED]


def _refusal(body: bytes) -> int | None:
    try:
        decode(body, None)
    except ApiError as refused:
        return refused.code
    return None


def _canonical(document: Document) -> Document:
    of = kind_type("v1" if document["kind"] == "DeleteOptions" else document["apiVersion"], document["kind"])
    assert of is not None
    canonicalize(document, of)
    return document


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: f"{entry['json']['apiVersion']}-{entry['json']['kind']}")
def test_decoded_like_go(entry: Document) -> None:
    decoded = decode(base64.b64decode(entry["base64"]), None)
    assert _canonical(decoded) == _canonical(entry["json"])


def test_kind_without_a_table() -> None:
    body = b"k8s\x00\x0a\x0b\x0a\x04x/v1\x12\x03Foo"
    with pytest.raises(ApiError) as refused:
        decode(body, None)
    assert refused.value.code == 415


def test_bytes_without_the_prefix() -> None:
    with pytest.raises(ApiError) as refused:
        decode(b"{}", None)
    assert refused.value.code == 400


@given(st.sampled_from(BODIES), st.data())
def test_truncated_bodies_are_refused_or_shorter(body: bytes, data: st.DataObject) -> None:
    """A damaged body never raises anything but a refusal."""
    cut = data.draw(st.integers(0, len(body)))
    assert _refusal(body[:cut]) in (None, 400, 415)


@given(st.sampled_from(BODIES), st.data())
def test_damaged_bodies_never_crash(body: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(4, len(body) - 1))
    damaged = body[:at] + bytes([data.draw(st.integers(0, 255))]) + body[at + 1 :]
    assert _refusal(damaged) in (None, 400, 415)
