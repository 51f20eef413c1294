"""From the plugin sets of a profile to the order of plugins at each extension point.

The rules are upstream's (mergePlugins and expandMultiPointPlugins): the profile's multiPoint set is laid over the
default one; at each point come first the multiPoint plugins that the point names as well, in the point's order, then
the other multiPoint plugins that implement the point, then what only the point names. ``*`` among a point's disabled
plugins keeps multiPoint out of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.document import PluginEntry, Plugins, PluginSet
from koordinator.scheduler.configuration.points import DEFAULT_PLUGINS, KNOWN_PLUGINS, POINTS
from koordinator.scheduler.engine.profile import PluginOrder

_FIELDS = {point: "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in point) for point in POINTS}
_DEFAULT = tuple(PluginEntry(name=name, weight=weight) for name, weight in DEFAULT_PLUGINS)
_PRE_BIND_WRITER = "DefaultPreBind"


def expand(plugins: Plugins | None, path: str) -> PluginOrder:
    """The order at each point. Raises ConfigurationError with a path below ``path``."""
    given = plugins or Plugins()
    _check_names(given, f"{path}.plugins")
    multi_point = _merge(_DEFAULT, given.multi_point)
    at_point = {point: _at(point, getattr(given, field), multi_point) for point, field in _FIELDS.items()}
    if plugins is not None:
        _append_pre_bind_writer(at_point["preBind"], given.pre_bind)
    _check_order(at_point, f"{path}.plugins")
    weights = {entry.name: entry.weight for entry in multi_point} | {
        entry.name: entry.weight for entry in given.score.enabled if entry.weight
    }
    names = {field: tuple(at_point[point]) for point, field in _FIELDS.items() if point not in _NOT_ORDERED}
    score = tuple((name, weights.get(name) or 1) for name in at_point["score"])
    return PluginOrder(**{**names, "score": score})  # type: ignore[arg-type]


_NOT_ORDERED = frozenset({"score", "permit", "bind"})


def plugins_of(plugins: Plugins | None) -> tuple[str, ...]:
    """Every plugin that takes part at any point, in the order of first mention."""
    given = plugins or Plugins()
    multi_point = _merge(_DEFAULT, given.multi_point)
    found: dict[str, None] = {}
    for point, field in _FIELDS.items():
        found.update(dict.fromkeys(_at(point, getattr(given, field), multi_point)))
    if plugins is not None and _PRE_BIND_WRITER not in found:
        listed: list[str] = []
        _append_pre_bind_writer(listed, given.pre_bind)
        found.update(dict.fromkeys(listed))
    return tuple(found)


def _merge(defaults: Sequence[PluginEntry], custom: PluginSet) -> list[PluginEntry]:
    disabled = {entry.name for entry in custom.disabled}
    own = {entry.name: entry for entry in custom.enabled}
    kept = [] if "*" in disabled else [entry for entry in defaults if entry.name not in disabled]
    merged = [own.pop(entry.name, entry) for entry in kept]
    return merged + list(own.values())


def _at(point: str, own: PluginSet, multi_point: Sequence[PluginEntry]) -> list[str]:
    named = [entry.name for entry in own.enabled]
    disabled = {entry.name for entry in own.disabled}
    if "*" in disabled:
        return named
    everywhere = [
        entry.name for entry in multi_point if point in KNOWN_PLUGINS[entry.name] and entry.name not in disabled
    ]
    overridden = [name for name in named if name in everywhere]
    others = [name for name in everywhere if name not in named]
    return overridden + others + [name for name in named if name not in everywhere]


def _append_pre_bind_writer(pre_bind: list[str], own: PluginSet) -> None:
    # Without it nothing that plugins decide about a pod would ever be written to it.
    disabled = {entry.name for entry in own.disabled}
    if _PRE_BIND_WRITER not in pre_bind and not disabled & {"*", _PRE_BIND_WRITER}:
        pre_bind.append(_PRE_BIND_WRITER)


def _check_names(plugins: Plugins, path: str) -> None:
    for point, field in (*_FIELDS.items(), ("multiPoint", "multi_point")):
        own: PluginSet = getattr(plugins, field)
        seen: set[str] = set()
        for index, entry in enumerate(own.enabled):
            where = f"{path}.{point}.enabled[{index}].name"
            if entry.name not in KNOWN_PLUGINS:
                raise ConfigurationError(where, entry.name, f"no such plugin; there are {', '.join(KNOWN_PLUGINS)}")
            if point != "multiPoint" and point not in KNOWN_PLUGINS[entry.name]:
                implemented = ", ".join(sorted(KNOWN_PLUGINS[entry.name]))
                raise ConfigurationError(where, entry.name, f"it does not extend {point}, but {implemented}")
            if entry.name in seen:
                raise ConfigurationError(where, entry.name, "a plugin may be enabled only once at a point")
            if not 0 <= entry.weight <= 2**31 - 1:
                raise ConfigurationError(f"{where.removesuffix('name')}weight", entry.weight, "0 or more")
            seen.add(entry.name)


def _check_order(at_point: dict[str, list[str]], path: str) -> None:
    if len(at_point["queueSort"]) != 1:
        raise ConfigurationError(f"{path}.queueSort", at_point["queueSort"], "exactly one plugin sorts the queue")
    if not at_point["bind"]:
        raise ConfigurationError(f"{path}.bind", [], "at least one plugin must bind")
