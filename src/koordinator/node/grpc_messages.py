"""Messages and statuses of gRPC on HTTP/2 streams (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md)."""

from __future__ import annotations

import zlib
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from koordinator.node.errors import NodeError

UNKNOWN: Final = 2
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

_PREFIX: Final = 5
_GZIP_WINDOW: Final = 31
_UNESCAPED: Final = "".join(chr(code) for code in range(0x20, 0x7F) if code != ord("%"))


class MessageError(NodeError):
    """What arrived is not one message that can be read."""


class GrpcError(NodeError):
    """A call that failed, with gRPC's code and the error text of the server or the client."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"rpc error: code = {code_name(code)} desc = {text}")
        self.code = code
        self.text = text


_CODES: Final = (
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
)


def code_name(code: int) -> str:
    """As gRPC for Go writes it."""
    return _CODES[code] if 0 <= code < len(_CODES) else f"Code({code})"


def encode_message(message: bytes) -> bytes:
    """A message with its length before it."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def decode_message(content: bytes, longest: int) -> bytes:
    """The one message of a stream; MessageError if there is none, more, or one of more than ``longest`` bytes."""
    if len(content) < _PREFIX:
        raise MessageError(f"a message needs {_PREFIX} bytes before it, not {len(content)}")
    compressed, length = content[0], int.from_bytes(content[1:_PREFIX], "big")
    if length != len(content) - _PREFIX:
        raise MessageError(f"one message of {length} bytes was announced, {len(content) - _PREFIX} bytes came")
    message = content[_PREFIX:]
    if not compressed:
        return message
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    try:
        message = decompressor.decompress(message, longest)
    except zlib.error as error:
        raise MessageError(f"the message is compressed, and not with gzip: {error}") from error
    if not decompressor.eof:
        raise MessageError(f"the message is cut off, or has more than {longest} bytes when it is decompressed")
    return message


def escape_text(text: str) -> bytes:
    """A status text as it stands in the header ``grpc-message``."""
    return quote_from_bytes(text.encode(), _UNESCAPED).encode()


def unescape_text(value: bytes) -> str:
    """The text of a header ``grpc-message``; what is not UTF-8 is replaced."""
    return unquote_to_bytes(value).decode(errors="replace")
