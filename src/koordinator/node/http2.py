"""HTTP/2 on the wire (RFC 9113), as far as gRPC needs it: frames, settings, header blocks.

There is no state machine of streams here: the unary client (``koordinator.node.grpc_client``) and the relay of
koord-runtime-proxy each keep the little that they need.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from koordinator.node.errors import NodeError

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends before its first frame."""

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

HEADER_TABLE_SIZE: Final = 1
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
REFUSED_STREAM: Final = 7
CANCEL: Final = 8

DEFAULT_WINDOW: Final = 65535
LONGEST_FRAME: Final = 16384
"""The payload that every peer takes; we never allow more."""
LONGEST_HEADER_BLOCK: Final = 1 << 20

_HEAD: Final = 9
_SETTING: Final = struct.Struct(">HI")


class Http2Error(NodeError):
    """The peer does not speak HTTP/2 as it should; the connection is of no use any more."""


class Frame(NamedTuple):
    """One frame, or a HEADERS frame with the CONTINUATION frames that belong to it."""

    kind: int
    flags: int
    stream: int
    start: int
    """Where it starts in the bytes that were given to ``split``."""
    end: int


class FrameSplitter:
    """Cuts what arrives on one connection into frames."""

    def __init__(self, *, preface: bool) -> None:
        """``preface``: whether the peer is a client, which says ``PREFACE`` first."""
        self._preface = preface
        self._is_new = preface
        self._rest = bytearray()
        self._in_block = 0
        """Of ``_rest``, when it starts with a header block: where the first of its frames is that is not yet seen."""

    @property
    def is_cut(self) -> bool:
        """Whether the peer has begun something that is not complete: a frame, or what a client has to say first."""
        return self._is_new or bool(self._rest)

    def split(self, arrived: bytes) -> tuple[bytes, list[Frame]]:
        """The bytes up to the end of the last complete frame, and the frames in them; the rest is kept for later.

        Http2Error if a frame is longer than allowed, or a header block is interrupted.
        """
        if not self._rest:
            position, frames = self._scan(arrived)
            if position == len(arrived):
                return arrived, frames
            self._rest += arrived[position:]
            return arrived[:position], frames
        self._rest += arrived
        position, frames = self._scan(self._rest)
        complete = bytes(memoryview(self._rest)[:position])
        del self._rest[:position]
        return complete, frames

    def _scan(self, data: bytes | bytearray) -> tuple[int, list[Frame]]:
        """The end of the last complete frame, and the frames up to there."""
        frames: list[Frame] = []
        position = 0
        if self._preface:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise Http2Error("the client does not speak HTTP/2")
            if len(data) < len(PREFACE):
                return 0, frames
            self._preface = False
            position = len(PREFACE)
        size = len(data)
        while position + _HEAD <= size:
            length = data[position] << 16 | data[position + 1] << 8 | data[position + 2]
            if length > LONGEST_FRAME:
                raise Http2Error(f"a frame of {length} bytes: at most {LONGEST_FRAME} are allowed")
            end = position + _HEAD + length
            if end > size:
                break
            kind, flags = data[position + 3], data[position + 4]
            stream = int.from_bytes(data[position + 5 : position + 9], "big") & 0x7FFFFFFF
            if kind == HEADERS and not flags & END_HEADERS:
                seen, is_whole = _end_of_block(data, position, max(end, position + self._in_block), stream)
                if not is_whole:
                    self._in_block = seen - position
                    break
                self._in_block = 0
                end = seen
            frames.append(Frame(kind, flags, stream, position, end))
            position = end
        if frames:
            self._is_new = False
        return position, frames


def _end_of_block(data: bytes | bytearray, start: int, position: int, stream: int) -> tuple[int, bool]:
    """Where the CONTINUATION frames from ``position`` on end, and whether the block does, which began at ``start``."""
    while position + _HEAD <= len(data):
        length = int.from_bytes(data[position : position + 3], "big")
        kind, flags = data[position + 3], data[position + 4]
        of = int.from_bytes(data[position + 5 : position + 9], "big") & 0x7FFFFFFF
        if kind != CONTINUATION or of != stream or length > LONGEST_FRAME:
            raise Http2Error("a header block is interrupted by another frame")
        end = position + _HEAD + length
        if end - start > LONGEST_HEADER_BLOCK:
            raise Http2Error(f"a header block of more than {LONGEST_HEADER_BLOCK} bytes")
        if end > len(data):
            break
        position = end
        if flags & END_HEADERS:
            return position, True
    return position, False


def payload_length(frame: Frame) -> int:
    """What a DATA frame takes of the windows: all but its head, padding included."""
    return frame.end - frame.start - _HEAD


def payload(data: bytes, frame: Frame) -> bytes:
    """What a DATA frame carries, without padding."""
    return _unpadded(data[frame.start + _HEAD : frame.end], frame.flags)


def header_block(data: bytes, frame: Frame) -> bytes:
    """The whole header block of a HEADERS frame with its CONTINUATION frames."""
    length = int.from_bytes(data[frame.start : frame.start + 3], "big")
    position = frame.start + _HEAD + length
    first = _unpadded(data[frame.start + _HEAD : position], frame.flags)
    parts = [first[5:] if frame.flags & WITH_PRIORITY else first]
    while position < frame.end:
        length = int.from_bytes(data[position : position + 3], "big")
        parts.append(data[position + _HEAD : position + _HEAD + length])
        position += _HEAD + length
    return b"".join(parts)


def _unpadded(content: bytes, flags: int) -> bytes:
    if not flags & PADDED:
        return content
    if not content or content[0] >= len(content):
        raise Http2Error("padding is longer than its frame")
    return content[1 : len(content) - content[0]]


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """One frame in bytes."""
    return b"%b%c%c%b%b" % (len(content).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), content)


def data_frames(stream: int, content: bytes, *, end_stream: bool) -> Iterator[bytes]:
    """DATA frames, none longer than every peer takes."""
    for position in range(0, max(len(content), 1), LONGEST_FRAME):
        piece = content[position : position + LONGEST_FRAME]
        is_last = position + LONGEST_FRAME >= len(content)
        yield frame(DATA, END_STREAM if end_stream and is_last else 0, stream, piece)


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def window_increment(data: bytes, update: Frame) -> int:
    """By how much a WINDOW_UPDATE frame opens the window."""
    if update.end - update.start != _HEAD + 4:
        raise Http2Error("a WINDOW_UPDATE frame must have four bytes")
    return int.from_bytes(data[update.start + _HEAD : update.end], "big") & 0x7FFFFFFF


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def go_away(last_stream: int, code: int) -> bytes:
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + code.to_bytes(4, "big"))


def last_processed(data: bytes, away: Frame) -> int:
    """The last stream that the sender of a GOAWAY frame has processed, or may have."""
    if away.end - away.start < _HEAD + 8:
        raise Http2Error("a GOAWAY frame must have eight bytes")
    return int.from_bytes(data[away.start + _HEAD : away.start + _HEAD + 4], "big") & 0x7FFFFFFF


def reset_code(data: bytes, given: Frame) -> int:
    """Why a RST_STREAM frame ends its stream."""
    if given.end - given.start != _HEAD + 4:
        raise Http2Error("a RST_STREAM frame must have four bytes")
    return int.from_bytes(data[given.start + _HEAD : given.end], "big")


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values))


def parse_settings(data: bytes, given: Frame) -> list[tuple[int, int]]:
    """Identifiers and values in their order."""
    content = data[given.start + _HEAD : given.end]
    if len(content) % _SETTING.size:
        raise Http2Error("a SETTINGS frame must have a multiple of six bytes")
    return list(_SETTING.iter_unpack(content))


def literal_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A header block that neither reads nor changes the table of the connection's compression (RFC 7541, 6.2.2)."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)


def _text(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    prefix = bytearray(b"\x7f")
    length -= 127
    while length >= 128:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + text
