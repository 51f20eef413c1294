"""What other packages add to a program, found by their entry points."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec

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


class OfferedClasses:
    """The classes that the packages of this environment offer in a group, by name. A package runs its code when it is
    imported, which is when its class is loaded."""

    def __init__(self, group: str, list_entry_points: ListEntryPoints | None, expected: str) -> None:
        """``list_entry_points`` is called once, when a name is first looked up; ``expected`` is said of what cannot be
        imported."""
        self._list = list_entry_points or listing(group)
        self._expected = expected

    @cached_property
    def by_name(self) -> Mapping[str, Sequence[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in self._list():
            found.setdefault(entry.name, []).append(entry)
        return found

    def load(self, name: str, where: str) -> tuple[EntryPoint, Any]:
        """The entry point and what it names, not checked. Raises KeyError for a name that no package offers, and
        ConfigurationError where several do, or its package cannot be imported."""
        entry, *others = self.by_name[name]
        if others:
            rivals = ", ".join(origin(other) for other in others)
            refuse(entry, where, f"is also declared by {rivals}", "expected is one distribution that declares it")
        try:
            return entry, entry.load()
        except Exception as error:
            refuse(entry, where, f"cannot be imported ({type(error).__name__}: {error})", self._expected, error)


def check_arguments_type(entry: EntryPoint, where: str, found: object) -> None:
    """Of a plugin, whose arguments the configuration file has: raises ConfigurationError unless they can be decoded."""
    is_record = isinstance(found, type) and (issubclass(found, msgspec.Struct) or dataclasses.is_dataclass(found))
    if found is not None and not is_record:
        refuse(entry, where, f"has args_type = {found!r}", "expected is a msgspec.Struct, a dataclass, or None")


def refuse(entry: EntryPoint, where: str, what: str, expected: str, cause: Exception | None = None) -> NoReturn:
    """Raise ConfigurationError, in one line with the entry point and its distribution."""
    text = f"entry point {entry.name} = {entry.value} of {origin(entry)} {what}; {expected}"
    raise ConfigurationError(where, entry.name, text) from cause


def origin(entry: EntryPoint) -> str:
    """Name and version of the distribution that declares it."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown distribution"
