"""All plugins by name: those that are built in, and those of other packages, which are imported only when a profile
names them.

A package that offers a plugin declares it in its pyproject.toml:

    [project.entry-points."koordinator.descheduler.plugins"]
    OldBatchPods = "old_batch_pods:OldBatchPods"
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import EntryPoint
from typing import Final

import msgspec

from koordinator.base.installed import ListEntryPoints, listing, origin, refuse
from koordinator.descheduler.framework import BalancePlugin, DeschedulePlugin, EvictPlugin, FilterPlugin, Plugin

GROUP: Final = "koordinator.descheduler.plugins"
POINTS: Final[Mapping[str, type[Plugin]]] = {
    "deschedule": DeschedulePlugin,
    "balance": BalancePlugin,
    "evict": EvictPlugin,
    "filter": FilterPlugin,
}
"""Extension point -> what a plugin of that point is."""


class Catalogue:
    """``built_in`` by name; ``list_entry_points`` is called once, and only for a name that is not built in."""

    def __init__(
        self,
        built_in: Mapping[str, type[Plugin]],
        list_entry_points: ListEntryPoints | None = None,
    ) -> None:
        self._built_in = built_in
        self._list = list_entry_points or listing(GROUP)
        self.third_party: dict[str, str] = {}
        """The distributions of those that were loaded, by the name of the plugin."""

    @cached_property
    def _offered(self) -> Mapping[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in self._list():
            found.setdefault(entry.name, []).append(entry)
        return found

    def find(self, name: str, where: str) -> type[Plugin] | None:
        """None when no package offers that name. Raises ConfigurationError for a plugin that cannot be used."""
        if name in self._built_in:
            return self._built_in[name]
        entries = self._offered.get(name)
        if not entries:
            return None
        entry, *others = entries
        if others:
            rivals = ", ".join(origin(other) for other in others)
            refuse(entry, where, f"is also declared by {rivals}", "expected is one distribution that declares it")
        plugin = _load(entry, where)
        self.third_party[name] = origin(entry)
        return plugin


def _load(entry: EntryPoint, where: str) -> type[Plugin]:
    expected = f"expected is a class that derives from {Plugin.__module__}.{Plugin.__name__}"
    try:
        plugin = entry.load()
    except Exception as error:
        refuse(entry, where, f"cannot be imported ({type(error).__name__}: {error})", expected, error)
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
        refuse(entry, where, f"is {plugin!r}", expected)
    if plugin.name != entry.name:
        refuse(entry, where, f"is a class with name = {plugin.name!r}", f"expected is name = {entry.name!r}")
    if inspect.isabstract(plugin) or not any(issubclass(plugin, point) for point in POINTS.values()):
        names = ", ".join(point.__name__ for point in POINTS.values())
        refuse(entry, where, "takes part at no extension point", f"expected is a class such as {names}")
    if plugin.args_type is not None and not _is_record(plugin.args_type):
        allowed = "expected is a msgspec.Struct, a dataclass, or None"
        refuse(entry, where, f"has args_type = {plugin.args_type!r}", allowed)
    return plugin


def _is_record(value: object) -> bool:
    return isinstance(value, type) and (issubclass(value, msgspec.Struct) or dataclasses.is_dataclass(value))
