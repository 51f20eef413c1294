"""List flags such as ``--controllers``: a name enables, ``-name`` disables, ``*`` enables all others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from koordinator.base.spelling import meant

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
            found = meant(name, known)
            hint = f"did you mean {found}?" if found else f"known are {', '.join(known)}"
            sentences.append(f"{entry!r} names nothing: {hint}")
    return sentences
