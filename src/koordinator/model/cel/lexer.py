"""The tokens of an expression (cel-spec, ``CEL.g4``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from koordinator.model.cel.errors import Issue

_STRING: Final = (
    r'[rR]"""(?s:.*?)"""|[rR]\'\'\'(?s:.*?)\'\'\'|[rR]"[^"\n\r]*"|[rR]\'[^\'\n\r]*\''
    r'|"""(?:\\(?s:.)|[^\\])*?"""|\'\'\'(?:\\(?s:.)|[^\\])*?\'\'\''
    r'|"(?:\\.|[^\\"\n\r])*"|\'(?:\\.|[^\\\'\n\r])*\''
)
_TOKEN: Final = re.compile(
    rf"""(?P<space>[\t \r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB](?:{_STRING}))|(?P<string>{_STRING})
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])|(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<escaped>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])""".replace("\n    |", "|"),
    re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\"'\\?`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(?s:(.)))"
)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


_LONGEST_NUMBER: Final = 400
"""Digits; Python refuses to read numbers of thousands."""


class Token(NamedTuple):
    kind: str
    """bytes, string, float, uint, int, name, escaped, operator (which ``in`` is, too), literal or end."""
    text: str
    position: int


class LexicalError(Exception):
    """A literal that is none."""


def tokens(source: str, issues: list[Issue]) -> Iterator[Token]:
    """What is no token is added to ``issues`` and left out."""
    position = 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            issues.append(Issue(position, f"Syntax error: token recognition error at: '{_unread(source, position)}'"))
            position += len(_unread(source, position))
            continue
        kind, text = str(found.lastgroup), found[0]
        if kind != "space":
            yield Token(_kind(kind, text), text, position)
        position = found.end()
    yield Token("end", "<EOF>", len(source))


def _kind(kind: str, text: str) -> str:
    if kind != "name":
        return kind
    return "operator" if text == "in" else "literal" if text in ("true", "false", "null") else kind


def _unread(source: str, position: int) -> str:
    """What the real server's lexer gives up: the rest of a line where a text is not closed, else one character."""
    if source[position] in "\"'":
        return source[position:].split("\n", 1)[0]
    return source[position : position + (2 if source[position] in "|&=" and position + 1 < len(source) else 1)]


def text_value(literal: str) -> str:
    """Raises LexicalError."""
    raw, body = _opened(literal)
    if raw:
        return body
    body = body.replace("\r\n", "\n").replace("\r", "\n") if "\r" in body else body
    return _ESCAPE.sub(_character, body) if "\\" in body else body


def bytes_value(literal: str) -> bytes:
    """Raises LexicalError."""
    raw, body = _opened(literal[1:])
    if raw:
        return body.encode()
    parts: list[bytes] = []
    end = 0
    for found in _ESCAPE.finditer(body):
        parts.append(body[end : found.start()].encode())
        parts.append(_octets(found))
        end = found.end()
    return b"".join([*parts, body[end:].encode()])


def _opened(literal: str) -> tuple[bool, str]:
    """Whether it is raw, and what is between the quotes."""
    raw = literal[0] in "rR"
    quoted = literal[1:] if raw else literal
    width = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    return raw, quoted[width:-width]


def _character(found: re.Match[str]) -> str:
    simple, two, four, eight, octal, other = found.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    if other is not None:
        raise LexicalError(f"unable to unescape string: \\{other}")
    code = int(octal, 8) if octal else int(two or four or eight, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise LexicalError("invalid unicode code point")
    return chr(code)


def _octets(found: re.Match[str]) -> bytes:
    _, two, _, _, octal, _ = found.groups()
    if two or octal:
        return bytes([int(octal, 8) if octal else int(two, 16)])
    return _character(found).encode()


def number_value(token: Token) -> Any:
    """The int or float of a literal without its sign; uint's suffix is dropped."""
    if token.kind == "float":
        return float(token.text)
    digits = token.text.rstrip("uU")
    if len(digits) > _LONGEST_NUMBER:
        return 1 << 64  # does not fit either
    return int(digits, 16) if digits.startswith("0x") else int(digits)
