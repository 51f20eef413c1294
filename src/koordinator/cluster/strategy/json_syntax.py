"""What Go's decoder says of a text that should be JSON: clients see these words in refusals."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

# Where a text ceases to be JSON.


_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_NUMBER_PARTS: Final = (
    (re.compile(rb"-?"), re.compile(rb"0|[1-9][0-9]*"), "in numeric literal"),
    (re.compile(rb"\."), re.compile(rb"[0-9]+"), "after decimal point in numeric literal"),
    (re.compile(rb"[eE][+-]?"), re.compile(rb"[0-9]+"), "in exponent of numeric literal"),
)
"""Parts of a number: what opens one, what must follow, and where one is when it does not."""
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_LITERALS: Final = (b"true", b"false", b"null")
_ENDED: Final = "unexpected end of JSON input"
_BETWEEN_TOKENS: Final = frozenset(
    {
        "looking for beginning of value", "looking for beginning of object key string", "after object key",
        "after object key:value pair", "after array element", "in string literal",
    }
)  # fmt: skip
"""Where a blank does no harm."""


_MAX_STEPS: Final = 20_000
"""Values and members among which an error is searched for: it takes Python microseconds for each."""
_MAX_LEVELS: Final = 200


def object_syntax_error(text: bytes) -> str:
    """Empty for an object and for null."""
    try:
        decoded: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return syntax_error(text, error)
    if decoded is None or isinstance(decoded, dict):
        return ""
    return f"json: cannot unmarshal {json_kind(decoded)} into Go value of type map[string]interface {{}}"


def syntax_error(text: bytes, error: Exception) -> str:
    """About a text that did not decode: ``error`` says why, in words that are used where Go's are not known."""
    if isinstance(error, RecursionError):
        return "exceeded max depth"
    try:
        return _Scanner(text).syntax_error() or str(error)
    except _TooLong:
        return str(error)


def json_kind(value: Any) -> str:
    """What Go calls the type of a decoded value."""
    return {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")


class _Unexpected(Exception):
    pass


class _TooLong(Exception):
    pass


class _Scanner:
    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0
        self._steps = 0
        self._level = 0

    def syntax_error(self) -> str:
        try:
            self._value()
            self._skip(_SPACE)
            return "" if self._at == len(self._text) else self._unexpected("after top-level value")
        except _Unexpected as error:
            return str(error)

    def _value(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS or self._level > _MAX_LEVELS:
            raise _TooLong
        self._skip(_SPACE)
        opening = self._peek()
        if opening == b"{":
            self._members(b"}", "object key:value pair", self._member)
        elif opening == b"[":
            self._members(b"]", "array element", self._value)
        elif opening == b'"':
            self._string()
        elif opening and opening in b"-0123456789":
            self._number()
        else:
            self._literal(opening)

    def _members(self, closing: bytes, what: str, member: Any) -> None:
        self._at += 1
        self._skip(_SPACE)
        if self._peek() == closing:
            self._at += 1
            return
        self._level += 1
        while True:
            member()
            self._skip(_SPACE)
            if self._peek() == closing:
                self._at += 1
                self._level -= 1
                return
            self._expect(b",", f"after {what}")

    def _member(self) -> None:
        self._skip(_SPACE)
        if self._peek() != b'"':
            self._fail("looking for beginning of object key string")
        self._string()
        self._skip(_SPACE)
        self._expect(b":", "after object key")
        self._value()

    def _string(self) -> None:
        self._at += 1
        while True:
            self._skip(_PLAIN)
            if self._peek() == b'"':
                self._at += 1
                return
            self._expect(b"\\", "in string literal")
            if self._peek() == b"u":
                for _ in range(4):
                    self._at += 1
                    self._among(b"0123456789abcdefABCDEF", "in \\u hexadecimal character escape")
            else:
                self._among(b'bfnrt\\/"', "in string escape code")
            self._at += 1

    def _number(self) -> None:
        for opening, rest, where in _NUMBER_PARTS:
            begun = opening.match(self._text, self._at)
            if begun is None:
                continue
            self._at = begun.end()
            found = rest.match(self._text, self._at)
            if found is None:
                self._fail(where)
            else:
                self._at = found.end()

    def _literal(self, opening: bytes) -> None:
        literal = next((word for word in _LITERALS if word[:1] == opening), b"")
        if not opening or not literal:
            self._fail("looking for beginning of value")
        for wanted in literal[1:]:
            self._at += 1
            self._among(bytes([wanted]), f"in literal {literal.decode()} (expecting '{chr(wanted)}')")
        self._at += 1

    def _expect(self, wanted: bytes, where: str) -> None:
        self._among(wanted, where)
        self._at += 1

    def _among(self, allowed: bytes, where: str) -> None:
        found = self._peek()
        if not found or found not in allowed:
            self._fail(where)

    def _peek(self) -> bytes:
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[bytes]) -> None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()

    def _fail(self, where: str) -> None:
        raise _Unexpected(self._unexpected(where))

    def _unexpected(self, where: str) -> str:
        found = self._peek()
        if not found and where in _BETWEEN_TOKENS:
            return _ENDED
        # Go marks the end of a text by giving its scanner one more blank.
        return f"invalid character {_quoted(found[0] if found else 0x20)} {where}"


def _quoted(byte: int) -> str:
    """A byte as Go quotes a character."""
    special = {0x27: r"'\''", 0x22: "'\"'", 0x5C: r"'\\'", 0x0A: r"'\n'", 0x0D: r"'\r'", 0x09: r"'\t'"}
    special |= {0x00: r"'\x00'", 0x07: r"'\a'", 0x08: r"'\b'", 0x0B: r"'\v'", 0x0C: r"'\f'"}
    if byte in special:
        return special[byte]
    return f"'{chr(byte)}'" if 0x20 <= byte < 0x7F or byte > 0xA0 else f"'\\x{byte:02x}'"
