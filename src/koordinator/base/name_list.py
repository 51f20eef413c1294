"""Lists of flags such as ``--controllers``: names, ``-name`` leaves one out, ``*`` is the rest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

EVERYTHING = "*"


def is_enabled(name: str, wanted: Sequence[str]) -> bool:
    """Read from the left: the first entry that names ``name`` decides; without one, whether ``*`` stands anywhere."""
    for entry in wanted:
        if entry == name:
            return True
        if entry == f"-{name}":
            return False
    return EVERYTHING in wanted


def unknown_names(wanted: Sequence[str], known: Collection[str]) -> list[str]:
    """A sentence for each entry that names nothing, with what may have been meant."""
    sentences = []
    for entry in wanted:
        name = entry.removeprefix("-")
        if name != EVERYTHING and name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            sentences.append(f"{entry!r} names nothing: {hint}")
    return sentences
