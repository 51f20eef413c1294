"""The word that was meant, where another one was typed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_CUTOFF: Final = 0.6
"""Of ``difflib.get_close_matches``: a letter or two apart."""


def meant(word: str, known: Iterable[str]) -> str:
    """Return the member of ``known`` that ``word`` is likely to stand for; empty if none is near."""
    # Loaded where a mistake was made: every start of a command would pay for it.
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=_CUTOFF)
    return by_lower[near[0]] if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean WORD?``, or nothing if no member of ``known`` is near."""
    near = meant(word, known)
    return f"; did you mean {near}?" if near else ""
