"""Frames are found wherever the bytes of a connection are cut."""

from __future__ import annotations

import time

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from koordinator.node import http2

_FRAMES = st.lists(
    st.tuples(
        st.integers(0, 8).filter(lambda kind: kind != http2.HEADERS),
        st.integers(0, 255),
        st.integers(0, 9),
        st.binary(max_size=40),
    )
)


@given(_FRAMES, st.lists(st.integers(1, 60)))
def test_frames_are_the_same_however_they_arrive(frames: list[tuple[int, int, int, bytes]], cuts: list[int]) -> None:
    sent = http2.PREFACE + b"".join(http2.frame(*frame) for frame in frames)
    splitter = http2.FrameSplitter(preface=True)
    found, passed = [], b""
    for piece in _pieces(sent, cuts):
        data, frames_of_piece = splitter.split(piece)
        passed += data
        found += [(each.kind, each.flags, each.stream, data[each.start + 9 : each.end]) for each in frames_of_piece]
    assert found == frames
    assert passed == sent


def _pieces(sent: bytes, cuts: list[int]) -> list[bytes]:
    pieces = []
    for cut in cuts:
        pieces.append(sent[:cut])
        sent = sent[cut:]
    return [*pieces, sent]


@given(st.binary(min_size=1, max_size=300), st.integers(1, 100))
def test_a_header_block_in_many_frames_is_one(block: bytes, size: int) -> None:
    parts = [block[start : start + size] for start in range(0, len(block), size)]
    last = len(parts) - 1
    frames = [
        http2.frame(
            http2.CONTINUATION if number else http2.HEADERS, http2.END_HEADERS if number == last else 0, 5, part
        )
        for number, part in enumerate(parts)
    ]
    splitter = http2.FrameSplitter(preface=False)
    found = [(data, frame) for each in frames for data, of in [splitter.split(each)] for frame in of]
    assert [http2.header_block(data, frame) for data, frame in found] == [block]


def test_a_header_block_in_very_many_frames_is_looked_at_once() -> None:
    """Who sends a megabyte in frames of a byte causes no more work than a megabyte is worth: a second, not an hour."""
    count = 100_000
    frame = http2.frame(http2.CONTINUATION, 0, 1, b"x")
    splitter = http2.FrameSplitter(preface=False)
    started = time.process_time()
    splitter.split(http2.frame(http2.HEADERS, 0, 1))
    for _ in range(count):
        assert splitter.split(frame) == (b"", [])
        assert time.process_time() - started < 10
    data, (found,) = splitter.split(http2.frame(http2.CONTINUATION, http2.END_HEADERS, 1))
    assert http2.header_block(data, found) == b"x" * count


def test_padding_and_priority_are_not_part_of_a_header_block() -> None:
    content = b"\x02" + b"prio!" + b"block" + b"\0\0"
    data = http2.frame(http2.HEADERS, http2.END_HEADERS | http2.PADDED | http2.WITH_PRIORITY, 1, content)
    _, (frame,) = http2.FrameSplitter(preface=False).split(data)
    assert http2.header_block(data, frame) == b"block"


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=300))))
def test_literal_headers_are_what_a_decoder_reads(headers: list[tuple[bytes, bytes]]) -> None:
    assert list(Decoder(1 << 20).decode(http2.literal_headers(headers), raw=True)) == headers


@given(st.binary(max_size=3 * http2.LONGEST_FRAME))
def test_data_frames_carry_everything_and_end_once(content: bytes) -> None:
    data = b"".join(http2.data_frames(1, content, end_stream=True))
    whole, frames = http2.FrameSplitter(preface=False).split(data)
    assert b"".join(http2.payload(whole, frame) for frame in frames) == content
    assert [bool(frame.flags & http2.END_STREAM) for frame in frames] == [False] * (len(frames) - 1) + [True]


@pytest.mark.parametrize(
    ("arrived", "text"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak HTTP/2"),
        (http2.PREFACE + b"\xff\xff\xff\0\0\0\0\0\1", "at most 16384"),
        (http2.PREFACE + http2.frame(http2.HEADERS, 0, 1) + http2.frame(http2.PING, 0, 0, bytes(8)), "interrupted"),
    ],
)
def test_what_is_not_http2_is_refused(arrived: bytes, text: str) -> None:
    with pytest.raises(http2.Http2Error, match=text):
        http2.FrameSplitter(preface=True).split(arrived)
