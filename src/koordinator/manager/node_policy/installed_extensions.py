"""The parts of NodeSLOs that other packages add, found by their entry points.

A package that provides such a part declares it in its pyproject.toml:

    [project.entry-points."koordinator.manager.node_slo_extensions"]
    "example.com/disk-limits" = "disk_limits:DiskLimits"

Installing such a package beside koord-manager enables it: each is loaded at start. One that cannot be used fails the
start, with one line that names the distribution and the entry point.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Final

from koordinator.base.installed import ListEntryPoints, make_all, refuse
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

GROUP: Final = "koordinator.manager.node_slo_extensions"
_EXPECTED: Final = "expected is a class, made without arguments, with key, default, merge and for_node"


def installed_extensions(list_entry_points: ListEntryPoints | None = None) -> tuple[NodeSLOExtension, ...]:
    """All extensions installed in this environment, by key. Raises ConfigurationError for one that cannot be used."""
    found = make_all(GROUP, _check, _EXPECTED, list_entry_points)
    return tuple(extension for extension, _ in found.values())


def _check(entry: EntryPoint, extension: object) -> NodeSLOExtension:
    if not isinstance(extension, NodeSLOExtension):
        refuse(entry, f"entry point {GROUP}", f"gives {extension!r}", _EXPECTED)
    if extension.key != entry.name:
        what = f"has key = {extension.key!r}, and not the name of its entry point"
        refuse(entry, f"entry point {GROUP}", what, _EXPECTED)
    return extension
