"""All plugins by name: those that are built in, and those of other packages, which are imported only when a profile
names them.

A package that offers a plugin declares it in its pyproject.toml:

    [project.entry-points."koordinator.descheduler.plugins"]
    OldBatchPods = "old_batch_pods:OldBatchPods"
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Final

from koordinator.base.installed import ListEntryPoints, OfferedClasses, check_arguments_type, origin, refuse
from koordinator.descheduler.framework import BalancePlugin, DeschedulePlugin, EvictPlugin, FilterPlugin, Plugin

GROUP: Final = "koordinator.descheduler.plugins"
POINTS: Final[Mapping[str, type[Plugin]]] = {
    "deschedule": DeschedulePlugin,
    "balance": BalancePlugin,
    "evict": EvictPlugin,
    "filter": FilterPlugin,
}
"""Extension point -> what a plugin of that point is."""
_EXPECTED: Final = f"expected is a class that derives from {Plugin.__module__}.{Plugin.__name__}"


class Catalogue:
    """``built_in`` by name; ``list_entry_points`` is called once, and only for a name that is not built in."""

    def __init__(
        self,
        built_in: Mapping[str, type[Plugin]],
        list_entry_points: ListEntryPoints | None = None,
    ) -> None:
        self._built_in = built_in
        self._offered = OfferedClasses(GROUP, list_entry_points, _EXPECTED)
        self.third_party: dict[str, str] = {}
        """The distributions of those that were loaded, by the name of the plugin."""

    def find(self, name: str, where: str) -> type[Plugin] | None:
        """None when no package offers that name. Raises ConfigurationError for a plugin that cannot be used."""
        if name in self._built_in:
            return self._built_in[name]
        if name not in self._offered.by_name:
            return None
        entry, plugin = self._offered.load(name, where)
        _check(entry, plugin, where)
        self.third_party[name] = origin(entry)
        found: type[Plugin] = plugin
        return found


def _check(entry: EntryPoint, plugin: object, where: str) -> None:
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
        refuse(entry, where, f"is {plugin!r}", _EXPECTED)
    if plugin.name != entry.name:
        refuse(entry, where, f"is a class with name = {plugin.name!r}", f"expected is name = {entry.name!r}")
    if inspect.isabstract(plugin) or not any(issubclass(plugin, point) for point in POINTS.values()):
        names = ", ".join(point.__name__ for point in POINTS.values())
        refuse(entry, where, "takes part at no extension point", f"expected is a class such as {names}")
    check_arguments_type(entry, where, plugin.args_type)
