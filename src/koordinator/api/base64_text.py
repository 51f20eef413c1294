"""Bytes in JSON, as Go writes and reads them: standard base64 with padding, in which line breaks do not count."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from koordinator.base.errors import KoordinatorError

_ALPHABET: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_LINE_BREAKS: Final = b"\r\n"
_PADDING: Final = ord("=")


class Base64Error(KoordinatorError):
    """A text that is no base64; the message is that of Go's decoder."""


def decode_base64(text: str) -> bytes:
    """Raises Base64Error."""
    raw = text.encode()
    joined = raw.translate(None, _LINE_BREAKS)
    # Python lets more padding pass than there should be.
    padded = len(joined) % 4 == 0 and len(joined) - len(joined.rstrip(b"=")) <= 2
    try:
        if padded:
            return base64.b64decode(joined, validate=True)
    except binascii.Error:
        pass
    raise Base64Error(f"illegal base64 data at input byte {_bad_byte(raw)}")


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bad_byte(raw: bytes) -> int:
    """Where Go stops reading; for a group of four that ends too early that is where the group began."""
    held = 0
    for position, byte in enumerate(raw):
        if byte in _LINE_BREAKS:
            continue
        if byte in _ALPHABET:
            held = (held + 1) % 4
        elif byte != _PADDING or held < 2:
            return position
        else:
            return _bad_padding(raw, position, held)
    return len(raw) - held


def _bad_padding(raw: bytes, position: int, held: int) -> int:
    """``position`` is that of the first ``=`` of a group that holds two or three characters."""
    following = _next(raw, position + 1)
    if held == 2:
        if following == len(raw):
            return following
        if raw[following] != _PADDING:
            return following - 1
        following = _next(raw, following + 1)
    return following


def _next(raw: bytes, position: int) -> int:
    while position < len(raw) and raw[position] in _LINE_BREAKS:
        position += 1
    return position
