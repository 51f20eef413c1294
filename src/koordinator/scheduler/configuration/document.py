"""The configuration file: kubescheduler.config.k8s.io/v1, KubeSchedulerConfiguration, with its defaults, and what the
plugin sets of a profile expand to: the order of plugins at each extension point.

The rules of expansion are upstream's (mergePlugins and expandMultiPointPlugins): the profile's multiPoint set is merged
into the default one; at each point come first the multiPoint plugins that the point names as well, in the point's
order, then the other multiPoint plugins that implement the point, then those that only the point names. ``*`` among a
point's disabled plugins keeps multiPoint out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import fields, replace

from koordinator.api.component_configuration import (
    ClientConnection,
    LeaderElection,
    Strict,
    check_election,
    complete_connection,
    complete_election,
)
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.points import DEFAULT_PLUGINS, Catalogue
from koordinator.scheduler.configuration.upstream_arguments import check_range
from koordinator.scheduler.engine.profile import PluginOrder


class SchedulerLeaderElection(LeaderElection):
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class PluginEntry(Strict):
    name: str
    weight: int = 0


class PluginSet(Strict):
    enabled: list[PluginEntry] = []
    disabled: list[PluginEntry] = []


class Plugins(Strict):
    """Plugins by extension point; those of ``multi_point`` are enabled at all points that they implement."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()


SETS: Final = {each.encode_name: each.name for each in fields(Plugins)}
"""The fields of ``Plugins``, by their names in the configuration."""
FIELDS: Final = {name: field for name, field in SETS.items() if name != "multiPoint"}
"""Those of the extension points."""


class PluginConfig(Strict):
    name: str
    args: dict[str, Any] = {}


class Profile(Strict):
    scheduler_name: str | None = None
    """Required where there is more than one profile."""
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins | None = None
    plugin_config: list[PluginConfig] = []


class KubeSchedulerConfiguration(Strict):
    api_version: str
    kind: str
    parallelism: int = 16
    leader_election: SchedulerLeaderElection = SchedulerLeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: list[Profile] = []
    extenders: list[dict[str, Any]] = []
    delay_cache_until_active: bool = False


# Defaults and limits of the file itself, without plugins (upstream: SetDefaults and Validate of the kind).

_DEFAULT_NAME = "default-scheduler"


def complete_document(document: KubeSchedulerConfiguration, root: str) -> KubeSchedulerConfiguration:
    """Complete empty fields and check the rest. Raises ConfigurationError with paths below ``root``."""
    document = replace(
        document,
        client_connection=complete_connection(document.client_connection),
        leader_election=complete_election(document.leader_election),
        profiles=_complete_profiles(document.profiles),
    )
    if document.extenders:
        allowed = "none: scheduler extenders are not supported"
        raise ConfigurationError(f"{root}extenders", document.extenders, allowed)
    check_range(document.client_connection.burst, f"{root}clientConnection.burst", 0)
    check_range(document.parallelism, f"{root}parallelism", 1)
    _check_percentage(document.percentage_of_nodes_to_score, root)
    initial, longest = document.pod_initial_backoff_seconds, document.pod_max_backoff_seconds
    check_range(initial, f"{root}podInitialBackoffSeconds", 1)
    if longest < initial:
        allowed = f"at least podInitialBackoffSeconds ({initial})"
        raise ConfigurationError(f"{root}podMaxBackoffSeconds", longest, allowed)
    if document.leader_election.leader_elect:
        check_election(document.leader_election, f"{root}leaderElection")
    _check_profiles(document.profiles, f"{root}profiles")
    return document


def _complete_profiles(given: list[Profile]) -> list[Profile]:
    profiles = given or [Profile()]
    if len(profiles) == 1 and profiles[0].scheduler_name is None:
        return [replace(profiles[0], scheduler_name=_DEFAULT_NAME)]
    return profiles


def _check_profiles(profiles: list[Profile], path: str) -> None:
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        where = f"{path}[{index}]"
        name = profile.scheduler_name
        if not name or name in seen:
            raise ConfigurationError(f"{where}.schedulerName", name, "a name that no other profile has")
        seen.add(name)
        _check_percentage(profile.percentage_of_nodes_to_score, f"{where}.")


def _check_percentage(percentage: int | None, prefix: str) -> None:
    if percentage is not None:
        check_range(percentage, f"{prefix}percentageOfNodesToScore", 0, 100)


_DEFAULT: Final = tuple(PluginEntry(name=name, weight=weight) for name, weight in DEFAULT_PLUGINS)
_PRE_BIND_WRITER: Final = "DefaultPreBind"
_WRITTEN_BY_IT: Final = ("Reservation", "NodeNUMAResource", "DeviceShare", "Coscheduling")
_PREPARED_SCORERS: Final = ("NodeResourcesFitPlus", "ScarceResourceAvoidance")
"""Plugins that score by their preScore state, and fail every attempt when only one of the two points is enabled."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """The plugins of a profile. ``points`` has all extension points, by their names in the configuration."""

    points: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]
    """Weights of the plugins at score."""
    elsewhere: tuple[str, ...]
    """The plugins of multiPoint that implement none of these points, only Koordinator's hooks."""
    warnings: tuple[str, ...]

    @property
    def order(self) -> PluginOrder:
        names = {FIELDS[point]: plugins for point, plugins in self.points.items()}
        score = tuple((name, self.weights[name]) for name in self.points["score"])
        return PluginOrder(**{**names, "score": score})  # type: ignore[arg-type]

    @property
    def plugins(self) -> tuple[str, ...]:
        """Every plugin that is enabled at any point, in the order of first mention."""
        at_points = dict.fromkeys(name for names in self.points.values() for name in names)
        return (*at_points, *self.elsewhere)


def expand(plugins: Plugins | None, path: str, catalogue: Catalogue) -> Expansion:
    """The plugins at each point. Raises ConfigurationError with a path below ``path``."""
    given = plugins or Plugins()
    path = f"{path}.plugins"
    _check_names(given, path, catalogue)
    multi_point = _merge(_DEFAULT, given.multi_point)
    everywhere = {entry.name: catalogue.points_of(entry.name, f"{path}.multiPoint") for entry in multi_point}
    at_point = {point: _at(point, getattr(given, field), everywhere) for point, field in FIELDS.items()}
    disabled = {"*", _PRE_BIND_WRITER}.intersection(entry.name for entry in given.pre_bind.disabled)
    if plugins is not None and _PRE_BIND_WRITER not in at_point["preBind"] and not disabled:
        # Without it nothing that plugins decide about a pod would ever be written to it.
        at_point["preBind"].append(_PRE_BIND_WRITER)
    _check_order(at_point, path)
    points = {point: tuple(names) for point, names in at_point.items()}
    # An entry of the point itself wins, also without a weight: then that is 1, whatever multiPoint has.
    weights = {entry.name: entry.weight or 1 for entry in (*multi_point, *given.score.enabled)}
    elsewhere = tuple(name for name, implemented in everywhere.items() if not implemented)
    warnings = [*_unknown_disabled(given, path, catalogue), *_missing_writer(points, path)]
    return Expansion(points, {name: weights[name] for name in points["score"]}, elsewhere, tuple(warnings))


def _merge(defaults: Sequence[PluginEntry], custom: PluginSet) -> list[PluginEntry]:
    disabled = {entry.name for entry in custom.disabled}
    own = {entry.name: entry for entry in custom.enabled}
    kept = [] if "*" in disabled else [entry for entry in defaults if entry.name not in disabled]
    merged = [own.pop(entry.name, entry) for entry in kept]
    return merged + list(own.values())


def _at(point: str, own: PluginSet, multi_point: Mapping[str, frozenset[str]]) -> list[str]:
    named = [entry.name for entry in own.enabled]
    disabled = {entry.name for entry in own.disabled}
    if "*" in disabled:
        return named
    everywhere = [name for name, points in multi_point.items() if point in points and name not in disabled]
    overridden = [name for name in named if name in everywhere]
    others = [name for name in everywhere if name not in named]
    return overridden + others + [name for name in named if name not in everywhere]


def _check_names(plugins: Plugins, path: str, catalogue: Catalogue) -> None:
    for point, field in SETS.items():
        own: PluginSet = getattr(plugins, field)
        seen: set[str] = set()
        for index, entry in enumerate(own.enabled):
            where = f"{path}.{point}.enabled[{index}].name"
            implemented = catalogue.points_of(entry.name, where)
            if point != "multiPoint" and point not in implemented:
                others = ", ".join(sorted(implemented)) or "multiPoint alone"
                raise ConfigurationError(where, entry.name, f"it does not extend {point}, but {others}")
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
    for name in _PREPARED_SCORERS:
        if (name in at_point["preScore"]) != (name in at_point["score"]):
            point = "score" if name in at_point["score"] else "preScore"
            raise ConfigurationError(f"{path}.{point}", name, "enabled at both preScore and score, or at neither")


def _unknown_disabled(plugins: Plugins, path: str, catalogue: Catalogue) -> Iterator[str]:
    # Not an error for upstream either: configuration files outlive the plugins that they disable.
    for point, field in SETS.items():
        for index, entry in enumerate(getattr(plugins, field).disabled):
            if entry.name != "*" and entry.name not in catalogue:
                yield f"{path}.{point}.disabled[{index}].name: there is no plugin {entry.name} to disable"


def _missing_writer(points: Mapping[str, tuple[str, ...]], path: str) -> Iterator[str]:
    losing = [name for name in _WRITTEN_BY_IT if name in points["reserve"]]
    if losing and _PRE_BIND_WRITER not in points["preBind"]:
        yield (
            f"{path}.preBind: without {_PRE_BIND_WRITER} nothing that {', '.join(losing)} decide is written to pods, "
            "and a restart forgets it"
        )
