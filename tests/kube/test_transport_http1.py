"""Answers in every framing, in any pieces, and bytes that are no response."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.kube.errors import TransportError
from koordinator.kube.http1 import ResponseParser, read_success


def counted(body: bytes, *, before: bytes = b"") -> bytes:
    return before + b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nRetry-After: 3\r\n\r\n%s" % (len(body), body)


def chunked(parts: list[bytes], trailers: bytes = b"") -> bytes:
    chunks = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailers + b"\r\n"


def parse(wire: bytes, sizes: list[int]) -> ResponseParser:
    """Feed ``wire`` in pieces of these sizes, over and over."""
    parser, position, turn, complete = ResponseParser(), 0, 0, False
    while position < len(wire):
        assert not complete
        size = sizes[turn % len(sizes)]
        complete = parser.feed(wire[position : position + size])
        position, turn = position + size, turn + 1
    assert complete
    return parser


PIECES = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@settings(deadline=None)
@given(st.binary(max_size=200), PIECES, st.booleans())
def test_counted_bodies(body: bytes, sizes: list[int], interim: bool) -> None:
    before = b"HTTP/1.1 100 Continue\r\n\r\n" if interim else b""
    parser = parse(counted(body, before=before), sizes)
    assert (parser.status, parser.body, parser.keep_alive) == (200, body, True)
    assert parser.headers["retry-after"] == "3"


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=60), max_size=8), PIECES, st.sampled_from([b"", b"Trailer: x\r\n", b"A: b\r\nC: d\r\n"])
)
def test_chunked_bodies(parts: list[bytes], sizes: list[int], trailers: bytes) -> None:
    assert parse(chunked(parts, trailers), sizes).body == b"".join(parts)


def test_thousands_of_chunks_at_once() -> None:
    assert parse(chunked([b"x"] * 5000), [1 << 20]).body == b"x" * 5000


@pytest.mark.parametrize("status", [204, 304])
def test_responses_without_a_body(status: int) -> None:
    assert parse(b"HTTP/1.1 %d X\r\n\r\n" % status, [1000]).status == status


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    parser = ResponseParser()
    assert not parser.feed(b"HTTP/1.0 200 OK\r\n\r\nall ")
    assert not parser.feed(b"of it")
    assert parser.end()
    assert (parser.body, parser.keep_alive) == (b"all of it", False)


@pytest.mark.parametrize("wire", [counted(b"all of it"), chunked([b"all of it"])])
def test_a_response_is_freed_with_its_last_reference(wire: bytes) -> None:
    """The collector is off while the first lists come in: a page that waited for it would stay for ever."""
    gc.collect()
    parse(wire, [10])
    assert gc.collect() == 0


def test_a_counted_body_does_not_end_with_the_connection() -> None:
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    assert not parser.end()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: close", b"HTTP/1.0 200 OK"])
def test_connections_that_the_server_will_close(head: bytes) -> None:
    assert not parse(head + b"\r\nContent-Length: 0\r\n\r\n", [1000]).keep_alive


NOT_RESPONSES = {
    "not http": b"SSH-2.0-OpenSSH\r\n\r\n",
    "no status": b"HTTP/1.1 abc\r\n\r\n",
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "too long": counted(b"x") + b"more",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
    "chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    "no chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "endless chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 300,
    "chunk too long": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
    "after the chunks": chunked([b"x"]) + b"more",
}


@pytest.mark.parametrize("wire", NOT_RESPONSES.values(), ids=NOT_RESPONSES.keys())
def test_what_is_no_response_is_an_error(wire: bytes) -> None:
    with pytest.raises(TransportError):
        ResponseParser().feed(wire)


@settings(deadline=None)
@given(st.binary(max_size=300), PIECES)
def test_no_bytes_whatever_raise_anything_else(noise: bytes, sizes: list[int]) -> None:
    try:
        parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + noise, sizes)
    except (TransportError, AssertionError):
        return


def test_the_usual_response_is_read_at_once() -> None:
    read = read_success(b"HTTP/1.1 201 Created\r\nAudit-Id: x\r\nContent-Length: 2\r\nX-Last: y\r\n\r\n{}")
    assert read is not None
    assert (read.status, read.body, read.headers) == (
        201,
        b"{}",
        {"audit-id": "x", "content-length": "2", "x-last": "y"},
    )


NOT_USUAL = {
    "a failure": b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
    "no body": b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    "closing": b"HTTP/1.1 200 OK\r\nconnection: Close\r\nContent-Length: 2\r\n\r\n{}",
    "old": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "in chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "without a length": b"HTTP/1.1 200 OK\r\n\r\n",
    "not all of it": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
    "more than it": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
}


@pytest.mark.parametrize("wire", NOT_USUAL.values(), ids=NOT_USUAL.keys())
def test_other_responses_are_left_to_the_parser(wire: bytes) -> None:
    assert read_success(wire) is None


LINES = st.sampled_from(
    [
        b"Content-Length: 2",
        b"content-length:2 ",
        b"Content-Length: 7",
        b"Connection: close",
        b"connection: keep-alive",
        b"Transfer-Encoding: chunked",
        b"X: Content-Length: 3",
        b"X:",
        b"Retry-After: 3",
    ]
)
STATUSES = st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.1 201 Created", b"HTTP/1.0 200 OK", b"HTTP/1.1 500 Oh"])


@settings(deadline=None)
@given(STATUSES, st.lists(LINES, max_size=4), st.sampled_from([b"", b"{}", b"0\r\n\r\n", b"{}HTTP/1.1 200 OK\r\n\r\n"]))
def test_what_is_read_at_once_is_what_the_parser_reads(status: bytes, lines: list[bytes], rest: bytes) -> None:
    wire = b"\r\n".join([status, *lines]) + b"\r\n\r\n" + rest
    read = read_success(wire)
    if read is not None:
        parser = ResponseParser()
        assert parser.feed(wire)
        assert parser.keep_alive
        assert (read.status, read.headers, read.body) == (parser.status, parser.headers, parser.body)
