"""What other packages add to a program, found by their entry points."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from koordinator.base.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

ListEntryPoints = Callable[[], "Iterable[EntryPoint]"]
_METADATA: Final = (".dist-info", ".egg-info")


def listing(group: str) -> ListEntryPoints:
    """The entry points of a group in this environment."""

    def found() -> Iterable[EntryPoint]:
        if not is_declared(group, sys.path):
            return ()
        # With parsers of mail and of archives, more than a MiB that few nodes need.
        from importlib.metadata import entry_points

        return entry_points(group=group)

    return found


def is_declared(group: str, path: Sequence[str]) -> bool:
    """Whether any package on a path for imports may declare an entry point of the group: one in a folder, by its
    metadata; what is not a folder, such as an archive, may."""
    return any(_may_declare(f"[{group}]", folder or os.curdir) for folder in path)


def _may_declare(header: str, folder: str) -> bool:
    if not os.path.isdir(folder):
        return os.path.exists(folder)
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith(_METADATA) and header in _declared(Path(folder, name, "entry_points.txt")):
                return True
    return False


def _declared(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def make_all(
    group: str, check: Callable[[EntryPoint, object], T], expected: str, list_entry_points: ListEntryPoints | None
) -> dict[str, tuple[T, str]]:
    """By name, each with its distribution: what the entry points of a group give when they are called without
    arguments. ``check`` returns it, or refuses it.

    ConfigurationError for one that cannot be made, and for a name that two packages declare.
    """
    found: dict[str, tuple[EntryPoint, T]] = {}
    for entry in (list_entry_points or listing(group))():
        if entry.name in found:
            refuse(entry, f"entry point {group}", f"is also declared by {origin(found[entry.name][0])}", expected)
        try:
            made = entry.load()()
        except Exception as error:
            what = f"cannot be made ({type(error).__name__}: {error})"
            refuse(entry, f"entry point {group}", what, expected, error)
        found[entry.name] = entry, check(entry, made)
    return {name: (found[name][1], origin(found[name][0])) for name in sorted(found)}


def refuse(entry: EntryPoint, where: str, what: str, expected: str, cause: Exception | None = None) -> NoReturn:
    """Raise ConfigurationError, in one line with the entry point and its distribution."""
    text = f"entry point {entry.name} = {entry.value} of {origin(entry)} {what}; {expected}"
    raise ConfigurationError(where, entry.name, text) from cause


def origin(entry: EntryPoint) -> str:
    """Name and version of the distribution that declares it."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown distribution"
