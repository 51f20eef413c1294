"""The word that was meant, where another one was typed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_CUTOFF: Final = 0.6
"""Of ``difflib.get_close_matches``: a letter or two apart."""


def near(word: str, known: Iterable[str], most: int, *, cutoff: float = _CUTOFF) -> list[str]:
    """Return at most so many members of ``known`` that ``word`` may stand for, the likeliest first."""
    # Loaded where a mistake was made: every start of a command would pay for it.
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in known}
    return [by_lower[each] for each in get_close_matches(word.lower(), by_lower, n=most, cutoff=cutoff)]


def meant(word: str, known: Iterable[str]) -> str:
    """Return the member of ``known`` that ``word`` is likely to stand for; empty if none is near."""
    return next(iter(near(word, known, 1)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean WORD?``, or nothing if no member of ``known`` is near."""
    found = meant(word, known)
    return f"; did you mean {found}?" if found else ""
