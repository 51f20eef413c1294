"""The parts of NodeSLOs that other packages add, found by their entry points.

A package that provides such a part declares it in its pyproject.toml:

    [project.entry-points."koordinator.manager.node_slo_extensions"]
    "example.com/disk-limits" = "disk_limits:DiskLimits"

Installing such a package beside koord-manager enables it: each is loaded at start. One that cannot be used fails the
start, with one line that names the distribution and the entry point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NoReturn

from koordinator.base.errors import ConfigurationError
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

GROUP: Final = "koordinator.manager.node_slo_extensions"
_EXPECTED: Final = "expected is a class, made without arguments, with key, default, merge and for_node"


def installed_extensions(
    list_entry_points: Callable[[], Iterable[EntryPoint]] = lambda: entry_points(group=GROUP),
) -> tuple[NodeSLOExtension, ...]:
    """All extensions installed in this environment, by key. Raises ConfigurationError for one that cannot be used."""
    found: dict[str, tuple[EntryPoint, NodeSLOExtension]] = {}
    for entry in list_entry_points():
        if entry.name in found:
            _refuse(entry, f"is also declared by {_origin(found[entry.name][0])}")
        found[entry.name] = entry, _load(entry)
    return tuple(found[key][1] for key in sorted(found))


def _load(entry: EntryPoint) -> NodeSLOExtension:
    try:
        extension = entry.load()()
    except Exception as error:
        _refuse(entry, f"cannot be made ({type(error).__name__}: {error})", error)
    if not isinstance(extension, NodeSLOExtension):
        _refuse(entry, f"gives {extension!r}")
    if extension.key != entry.name:
        _refuse(entry, f"has key = {extension.key!r}, and not the name of its entry point")
    return extension


def _refuse(entry: EntryPoint, what: str, cause: Exception | None = None) -> NoReturn:
    text = f"{entry.value} of {_origin(entry)} {what}; {_EXPECTED}"
    raise ConfigurationError(f"entry point {GROUP}", entry.name, text) from cause


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown distribution"
