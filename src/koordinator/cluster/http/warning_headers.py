"""``Warning`` headers, bounded as the real server bounds them: whoever warns may be a webhook that says anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_LONGEST_IN_ALL: Final = 4096
"""Characters; when the texts come to more, each is cut."""
_LONGEST_CUT: Final = 256


def warning_headers(texts: Iterable[str]) -> list[str]:
    """The values of the headers: each text once, without those that come after there is no more room."""
    unique = dict.fromkeys(map(_printable, texts))
    unique.pop("", None)
    if sum(map(len, unique)) <= _LONGEST_IN_ALL:
        return [_header(text) for text in unique]
    headers, written = [], 0
    for text in unique:
        if written >= _LONGEST_IN_ALL:
            break
        cut = text[:_LONGEST_CUT]
        written += len(cut)
        headers.append(_header(cut))
    return headers


def _printable(text: str) -> str:
    """A header ends with its line, and control characters would be at home in a terminal."""
    if text.isprintable():
        return text
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown.strip()


def _header(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
