"""Patterns as the real server understands them: Go's syntax (RE2), which differs from Python's in some corners."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from koordinator.base.errors import KoordinatorError

_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_OUTSIDE: Final = re.compile(
    r"(?P<unicode>\\[pP](?:\{\^?\w+\}|\w))|\\(?P<escaped>.)|(?P<open>\[\^?\]?)|(?P<group>\(\?<(?=\w))|.", re.DOTALL
)
_INSIDE: Final = re.compile(
    r"(?P<unicode>\\[pP](?:\{\^?\w+\}|\w))|\\(?P<escaped>.)|\[:(?P<named>\^?\w+):\]|(?P<close>\])|.", re.DOTALL
)
_PERL: Final = re.compile(r"\(\?(?:[=!>(]|<[=!]|P[=>])")
_TWICE: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??(?:[*+]|\{\d+(?:,\d*)?\})")


class PatternError(KoordinatorError):
    """A pattern that does not compile; the text is Go's where it is one of Go's."""


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """For ``search``. Raises PatternError."""
    _refuse(pattern)
    try:
        return re.compile("".join(_translated(token) for token in _tokens(pattern)), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"error parsing regexp: {_reason(pattern, error)}") from error


def _tokens(pattern: str) -> Iterator[re.Match[str]]:
    at, inside = 0, False
    while at < len(pattern):
        token = (_INSIDE if inside else _OUTSIDE).match(pattern, at)
        assert token is not None, "any character is a token"
        yield token
        inside = (token["close"] is None) if inside else token["open"] is not None
        at = token.end()


def _refuse(pattern: str) -> None:
    """What Python would take and Go does not."""
    for token in _tokens(pattern):
        if token.re is _OUTSIDE and (token["escaped"] or "") in tuple("123456789kZXN"):
            raise PatternError(f"error parsing regexp: invalid escape sequence: `{token[0]}`")
    operators = "".join(
        token[0] if token.re is _OUTSIDE and len(token[0]) == 1 and not token["open"] else "a" * len(token[0])
        for token in _tokens(pattern)
    )
    for found, problem in (
        (_PERL, "invalid or unsupported Perl syntax"),
        (_TWICE, "invalid nested repetition operator"),
    ):
        if match := found.search(operators):
            raise PatternError(f"error parsing regexp: {problem}: `{pattern[match.start() : match.end()]}`")


def _translated(token: re.Match[str]) -> str:
    text = token[0]
    if token["unicode"]:
        raise PatternError(f"the unicode class {text} is not supported by this server")
    if token.re is _OUTSIDE:
        if text == "$":
            return r"\Z"
        if token["group"]:
            return "(?P<"
        return r"\Z" if token["escaped"] == "z" else text
    if named := token["named"]:
        members = _CLASSES.get(named)
        if members is None:
            raise PatternError(f"error parsing regexp: invalid character class range: `{text}`")
        return members
    # Python warns of what it may one day read as a set operation.
    return f"\\{text}" if text in ("[", "&", "~", "|") else text


def _reason(pattern: str, error: Exception) -> str:
    complaint, at = str(error), getattr(error, "pos", None) or 0
    if "unterminated character set" in complaint:
        return f"missing closing ]: `{pattern[at:]}`"
    if "missing )" in complaint:
        return f"missing closing ): `{pattern}`"
    if "unbalanced parenthesis" in complaint:
        return f"unexpected ): `{pattern}`"
    if "nothing to repeat" in complaint:
        return f"missing argument to repetition operator: `{pattern[at : at + 1]}`"
    if "bad escape (end" in complaint:
        return "trailing backslash at end of expression: ``"
    return complaint
