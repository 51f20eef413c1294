"""Plugins of other packages, found by their entry points and loaded only when a profile names them.

A package that offers a plugin declares it in its pyproject.toml:

    [project.entry-points."koordinator.scheduler.plugins"]
    TenantNodes = "tenant_nodes:TenantNodes"

Importing such a package runs its code, so a package is imported only if a profile names its plugin. An invalid plugin
is reported at the start, in one line that names the distribution and the entry point.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Final

from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError
from koordinator.base.installed import ListEntryPoints, OfferedClasses, check_arguments_type, origin, refuse
from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    BindPlugin,
    CyclePreFilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from koordinator.scheduler.engine.columns import Aspect, NamedAspect
from koordinator.scheduler.engine.framework import (
    FilterPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    ScorePlugin,
)
from koordinator.scheduler.engine.framework_hooks import (
    FilterTransformer,
    PostFilterTransformer,
    PreFilterTransformer,
    ScoreTransformer,
)
from koordinator.scheduler.engine.post_filter import PostFilterPlugin

_PROTOCOLS: Final[dict[str, tuple[type[Plugin], ...]]] = {
    "preEnqueue": (PreEnqueuePlugin,),
    "queueSort": (QueueSortPlugin,),
    "preFilter": (PreFilterPlugin, CyclePreFilterPlugin, PreFilterTransformer),
    "filter": (FilterPlugin, FilterTransformer),
    "postFilter": (PostFilterPlugin, PostFilterTransformer),
    "score": (ScorePlugin, ScoreTransformer),
    "reserve": (ReservePlugin, AllocatorPlugin),
    "permit": (PermitPlugin,),
    "preBind": (PreBindPlugin,),
    "bind": (BindPlugin,),
    "postBind": (PostBindPlugin,),
}
_ENGINE: Final = Plugin.__module__.rpartition(".")[0]


def implemented_points(plugin: type[Plugin]) -> frozenset[str]:
    """The points at which a profile lists the plugin, by their names in the configuration."""
    points = {point for point, protocols in _PROTOCOLS.items() if issubclass(plugin, protocols)}
    if issubclass(plugin, ScorePlugin) and plugin.pre_score is not ScorePlugin.pre_score:
        points.add("preScore")
    return frozenset(points).union(*map(implemented_points, plugin.part_types))


def has_hooks(plugin: type[Plugin]) -> bool:
    """Whether the class, or a part, derives from any extension point at all, hooks included, which are called wherever
    their plugin is in the profile (see ``framework_hooks``)."""
    protocols = (base for base in plugin.__mro__ if issubclass(base, Plugin) and base is not Plugin)
    own = any(base.__module__.startswith(f"{_ENGINE}.") for base in protocols)
    return own or any(map(has_hooks, plugin.part_types))


GROUP: Final = "koordinator.scheduler.plugins"
_EXPECTED: Final = f"expected is a class that derives from {Plugin.__module__}.{Plugin.__name__}"


@dataclass(frozen=True, slots=True)
class ThirdPartyPlugin:
    """A plugin class of another package, checked."""

    plugin: type[Plugin]
    points: frozenset[str]
    """By their names in the configuration; empty for a plugin that has only hooks."""
    origin: str
    """The distribution and its version."""

    @property
    def registers_no_events(self) -> bool:
        """Whether the plugin can end an attempt, or keep a pod out of the queue, and never says what may help."""
        parts = (self.plugin, *self.plugin.part_types)
        registers = any(part.events_to_register is not Plugin.events_to_register for part in parts)
        return not registers and not self.points.isdisjoint(("preEnqueue", "preFilter", "filter", "permit"))

    def make_arguments(self, document: Mapping[str, Any], path: str) -> Any:
        """The arguments decoded as ``args_type``, without the type meta, or, for a plugin without one, as they are in
        the file. Raises ConfigurationError."""
        expected = self.plugin.args_type
        if expected is None:
            return dict(document)
        fields = {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
        try:
            return decode_strictly(fields, expected, path)
        except ConfigurationError:
            raise
        except Exception as error:
            # The type's own checks (__post_init__) may raise anything.
            raise ConfigurationError(path, fields, f"{expected.__name__}: {error}") from error


class InstalledPlugins:
    """The entry points of this environment; ``list_entry_points`` is called once."""

    def __init__(self, list_entry_points: ListEntryPoints | None = None):
        self._offered = OfferedClasses(GROUP, list_entry_points, _EXPECTED)
        self._loaded: dict[str, ThirdPartyPlugin] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._offered.by_name))

    @property
    def loaded(self) -> Mapping[str, ThirdPartyPlugin]:
        """The plugins that were loaded so far, by name."""
        return dict(self._loaded)

    def check_not_taken(self, name: str, where: str) -> None:
        """Raises ConfigurationError when a package offers a plugin under the name of a built-in one."""
        for entry in self._offered.by_name.get(name, ()):
            refuse(entry, where, "clashes with the built-in plugin of that name", "expected is a name of its own")

    def load(self, name: str, where: str) -> ThirdPartyPlugin:
        """Import and check the plugin, once. Raises KeyError for a name that no package offers, and ConfigurationError
        with the path ``where`` for a plugin that cannot be used."""
        if name not in self._loaded:
            entry, plugin = self._offered.load(name, where)
            _check_class(entry, plugin, where)
            self._loaded[name] = ThirdPartyPlugin(plugin, implemented_points(plugin), origin(entry))
        return self._loaded[name]


def _check_class(entry: EntryPoint, plugin: Any, where: str) -> None:
    for part in (plugin, *getattr(plugin, "part_types", ())):
        if not (isinstance(part, type) and issubclass(part, Plugin)):
            refuse(entry, where, f"is {part!r}" if part is plugin else f"has a part {part!r}", _EXPECTED)
        subject = "is a class" if part is plugin else f"has a part {part.__qualname__}"
        own = getattr(part, "name", None)
        if own != entry.name:
            refuse(entry, where, f"{subject} with name = {own!r}", f"expected is name = {entry.name!r}")
        if inspect.isabstract(part):
            missing = ", ".join(sorted(part.__abstractmethods__))
            refuse(entry, where, f"{subject} without {missing}", "expected is a class that defines them")
        for base, attribute in ((FilterPlugin, "reads"), (ScorePlugin, "score_reads")):
            if issubclass(part, base) and not _are_aspects(value := getattr(part, attribute, None)):
                refuse(entry, where, f"has {attribute} = {value!r}", "expected is a tuple of Aspect or NamedAspect")
    if not implemented_points(plugin) and not has_hooks(plugin):
        refuse(entry, where, "takes part at no extension point", "expected is a class such as a FilterPlugin")
    check_arguments_type(entry, where, plugin.args_type)


def _are_aspects(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(aspect, Aspect | NamedAspect) for aspect in value)
