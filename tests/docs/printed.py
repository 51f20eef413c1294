"""Whether a command prints what its page says.

What is different each time may differ: whatever has a digit, a path, an address, or stands in parentheses; an ellipsis
stands for anything, and a table for its head, whose rows are examples. Tables may be drawn or plain, and texts wrapped
at any column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_FRAME: Final = re.compile(r"[\u2500-\u257f|]|[-+]{2,}")
_ROW: Final = "\u2502"
_ANYTHING: Final = re.compile(r"\S*(?:\.\.\.|\u2026)\S*")
_IN_PARENTHESES: Final = re.compile(r"\([^()]*\)")
_VOLATILE: Final = re.compile(r"\d|^[/~]|://")


def missing(shown: str, printed: str) -> str:
    """The first paragraph of ``shown`` that is not in ``printed`` after those before it; empty when all are."""
    rest = _plain(printed)
    for paragraph in _paragraphs(shown):
        found = re.search(_pattern(paragraph), rest)
        if not found:
            return paragraph
        rest = rest[found.end() :]
    return ""


def _paragraphs(shown: str) -> Iterator[str]:
    """What stands together: lines without an empty one between them, and heads of tables, each as one line."""
    for paragraph in re.split(r"\n\s*\n", shown):
        texts = [line for line in paragraph.splitlines() if not line.strip().startswith(_ROW)]
        if plain := _plain("\n".join(texts)):
            yield plain


def _plain(text: str) -> str:
    return " ".join(_FRAME.sub(" ", text).split())


def _pattern(paragraph: str) -> str:
    parts = [_words(part) for part in _IN_PARENTHESES.split(paragraph)]
    return r"\([^()]*\)".join(parts)


def _words(text: str) -> str:
    return re.sub(r"[^ ]+", lambda word: _word(word[0]), text)


def _word(word: str) -> str:
    if _ANYTHING.fullmatch(word):
        return ".*?"
    if _VOLATILE.search(word):
        return r"\S+"
    return re.escape(word)
