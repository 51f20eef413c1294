"""Netlink messages by hand, for a single request that is not worth a library (netlink(7))."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

NLM_F_DUMP: Final = 0x301
"""With NLM_F_REQUEST."""
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
_HEADER: Final = Struct("=IHHII")
"""Length, type, flags, sequence number, port."""


def request(kind: int, flags: int, body: bytes) -> bytes:
    """A whole message."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The type and the body of each message in what was received at once."""
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        if length < _HEADER.size:
            return
        yield kind, data[_HEADER.size : length]
        data = data[(length + 3) & ~3 :]
