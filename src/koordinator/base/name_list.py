"""List flags such as ``--controllers``: a name enables, ``-name`` disables, ``*`` enables all others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

EVERYTHING = "*"


def is_enabled(name: str, wanted: Sequence[str]) -> bool:
    """Return whether ``name`` is enabled: by the first entry that names it, otherwise by whether ``*`` is present."""
    for entry in wanted:
        if entry == name:
            return True
        if entry == f"-{name}":
            return False
    return EVERYTHING in wanted


def unknown_names(wanted: Sequence[str], known: Collection[str]) -> list[str]:
    """Return an error message for each entry that matches no name, with the closest known name."""
    sentences = []
    for entry in wanted:
        name = entry.removeprefix("-")
        if name != EVERYTHING and name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            sentences.append(f"{entry!r} names nothing: {hint}")
    return sentences
