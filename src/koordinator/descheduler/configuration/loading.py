"""From a file to a resolved configuration and back; every mistake is one ConfigurationError that names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec.structs import replace

from koordinator.api.component_configuration import (
    check_election,
    complete_connection,
    complete_election,
    plain_document,
)
from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError
from koordinator.base.listen_address import ListenAddress, parse_listen_address
from koordinator.base.strict_yaml import load_document, read_configuration_file
from koordinator.descheduler.catalogue import POINTS, Catalogue
from koordinator.descheduler.configuration.arguments import Arguments, checked_selector, make_arguments
from koordinator.descheduler.configuration.document import (
    DEFAULT_PORT,
    DEFAULT_PROFILE,
    KIND,
    VERSION,
    DeschedulerConfiguration,
    PluginEntry,
    Plugins,
    PluginSet,
    Profile,
)
from koordinator.descheduler.framework import Plugin

_CONFIG_MAP_KEY: Final = "koord-descheduler-config"
_DEFAULT_PLUGINS: Final[Mapping[str, tuple[str, ...]]] = {
    "evict": ("MigrationController",),
    "filter": ("MigrationController",),
}


@dataclass(frozen=True, slots=True)
class ProfileConfiguration:
    """A profile with nothing left to defaults."""

    document: Profile
    points: Mapping[str, tuple[str, ...]]
    """Extension point -> the plugins there, in order."""
    plugins: Mapping[str, type[Plugin]]
    """Each once, in the order in which they are first named."""
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Configuration:
    document: DeschedulerConfiguration
    profiles: tuple[ProfileConfiguration, ...]
    healthz: ListenAddress
    metrics: ListenAddress
    warnings: tuple[str, ...] = ()

    def with_document(self, document: DeschedulerConfiguration) -> Configuration:
        """The same with other settings outside of profiles."""
        return dataclasses.replace(self, document=document)

    def served_at(self, address: ListenAddress) -> Configuration:
        """The same with one address for everything that is served."""
        return dataclasses.replace(self, healthz=address, metrics=address)


def load_configuration(path: Path, catalogue: Catalogue) -> Configuration:
    """Read a file, YAML or JSON, or a ConfigMap that holds one. Raises ConfigurationError."""
    text = read_configuration_file("--config", path)
    return resolve(load_document(text, str(path), KIND, _CONFIG_MAP_KEY), f"{path}: ", catalogue)


def default_configuration(catalogue: Catalogue) -> Configuration:
    """What runs without a file: a controller of migration jobs, and one cycle without plugins."""
    return resolve({"apiVersion": VERSION, "kind": KIND}, "", catalogue)


def resolve(document: Mapping[str, Any], root: str, catalogue: Catalogue) -> Configuration:
    """Decode, fill in and check. ``root`` begins the paths in errors."""
    for field, expected in (("apiVersion", VERSION), ("kind", KIND)):
        if document.get(field) != expected:
            raise ConfigurationError(f"{root}{field}", document.get(field), expected)
    decoded = _completed(decode_strictly(document, DeschedulerConfiguration, root), root)
    profiles, warnings = [], []
    for index, profile in enumerate(decoded.profiles):
        resolved, remarks = _profile(profile, decoded, f"{root}profiles[{index}]", catalogue)
        profiles.append(resolved)
        warnings += remarks
    _check_controllers(profiles, root)
    return Configuration(
        decoded,
        tuple(profiles),
        _address(decoded.healthz_bind_address, f"{root}healthzBindAddress"),
        _address(decoded.metrics_bind_address, f"{root}metricsBindAddress"),
        tuple(warnings),
    )


def write_configuration(configuration: Configuration) -> str:
    """YAML that is read back to the same, with nothing left to defaults (``--write-config-to``)."""
    addresses = {"healthz_bind_address": str(configuration.healthz), "metrics_bind_address": str(configuration.metrics)}
    document = plain_document(replace(configuration.document, **addresses))
    document["profiles"] = [_written(profile) for profile in configuration.profiles]
    return yaml.safe_dump(document, sort_keys=False)


def _written(profile: ProfileConfiguration) -> dict[str, Any]:
    written: dict[str, Any] = {
        "name": profile.document.name,
        "pluginConfig": [
            {
                "name": name,
                "args": {"apiVersion": VERSION, "kind": f"{name}Args", **plain_document(profile.arguments[name])},
            }
            for name in sorted(profile.arguments)
        ],
        "plugins": {
            point: {"enabled": [{"name": name} for name in names], "disabled": [{"name": "*"}]}
            for point, names in profile.points.items()
        },
    }
    if profile.document.node_selector is not None:
        written["nodeSelector"] = plain_document(profile.document.node_selector)
    return written


def _completed(document: DeschedulerConfiguration, root: str) -> DeschedulerConfiguration:
    profiles = document.profiles or [Profile()]
    if len(profiles) == 1 and not profiles[0].name:
        profiles = [replace(profiles[0], name=DEFAULT_PROFILE)]
    document = replace(
        document,
        leader_election=complete_election(document.leader_election),
        client_connection=complete_connection(document.client_connection),
        profiles=profiles,
    )
    if document.leader_election.leader_elect:
        check_election(document.leader_election, f"{root}leaderElection")
    if document.client_connection.burst < 0:
        raise ConfigurationError(f"{root}clientConnection.burst", document.client_connection.burst, "at least 0")
    if document.descheduling_interval.total_seconds() < 0:
        text = str(document.descheduling_interval)
        raise ConfigurationError(f"{root}deschedulingInterval", text, "0s for one cycle, or a period above it")
    for field, limit in (
        ("maxNoOfPodsToEvictPerNode", document.max_no_of_pods_to_evict_per_node),
        ("maxNoOfPodsToEvictPerNamespace", document.max_no_of_pods_to_evict_per_namespace),
        ("maxNoOfPodsToEvictTotal", document.max_no_of_pods_to_evict_total),
    ):
        if limit is not None and limit < 0:
            raise ConfigurationError(f"{root}{field}", limit, "at least 0; leave it out for no limit")
    checked_selector(document.node_selector, f"{root}nodeSelector")
    _check_names(profiles, root)
    return document


def _check_names(profiles: Sequence[Profile], root: str) -> None:
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        where = f"{root}profiles[{index}].name"
        if not profile.name:
            raise ConfigurationError(where, profile.name, "descheduler name is needed")
        if profile.name in seen:
            text = f'duplicate profile with descheduler name "{profile.name}"'
            raise ConfigurationError(where, profile.name, text)
        seen.add(profile.name)


def _profile(
    profile: Profile, document: DeschedulerConfiguration, path: str, catalogue: Catalogue
) -> tuple[ProfileConfiguration, list[str]]:
    checked_selector(profile.node_selector, f"{path}.nodeSelector")
    points = {point: _merged(point, profile.plugins) for point in POINTS}
    plugins = dict(
        found
        for point, names in points.items()
        for found in _plugins(point, names, f"{path}.plugins.{point}", catalogue)
    )
    if len(points["evict"]) != 1:
        text = "only one evict plugin can be enabled" if points["evict"] else "no evict plugin is enabled"
        raise ConfigurationError(f"{path}.plugins.evict.enabled", list(points["evict"]), text)
    arguments, remarks = _arguments(profile, plugins, document, path, catalogue)
    return ProfileConfiguration(profile, points, plugins, arguments), remarks


def _check_controllers(profiles: Sequence[ProfileConfiguration], root: str) -> None:
    """A plugin with controllers is in one profile at most; by default all profiles have MigrationController."""
    owners: dict[str, str] = {}
    for index, profile in enumerate(profiles):
        for name, plugin in profile.plugins.items():
            if not plugin.has_controllers:
                continue
            if name in owners:
                point = next(point for point, names in profile.points.items() if name in names)
                where = f"{root}profiles[{index}].plugins.{point}.enabled[{name}]"
                text = (
                    f'only one profile can have plugin "{name}", and profile "{owners[name]}" has it already: '
                    f"both would do the same work; disable it at {point} and name another one"
                )
                raise ConfigurationError(where, name, text)
            owners[name] = profile.document.name


def _merged(point: str, plugins: Plugins | None) -> tuple[str, ...]:
    """The defaults that are not disabled, and after them what else is enabled."""
    given: PluginSet = getattr(plugins, point) if plugins is not None else PluginSet()
    disabled = {entry.name for entry in given.disabled}
    defaults = () if "*" in disabled else _DEFAULT_PLUGINS.get(point, ())
    kept = [name for name in defaults if name not in disabled]
    return (*kept, *(entry.name for entry in _without_first(given.enabled, kept)))


def _without_first(entries: Sequence[PluginEntry], kept: Sequence[str]) -> Iterator[PluginEntry]:
    """Those that do not stand for a default; a second entry of the same name stays, to be refused."""
    left = set(kept)
    for entry in entries:
        if entry.name in left:
            left.remove(entry.name)
        else:
            yield entry


def _plugins(point: str, names: Sequence[str], path: str, catalogue: Catalogue) -> Iterator[tuple[str, type[Plugin]]]:
    expected = POINTS[point]
    for index, name in enumerate(names):
        where = f"{path}.enabled[{name}]"
        plugin = catalogue.find(name, where)
        if plugin is None:
            raise ConfigurationError(where, name, f'{expected.__name__} "{name}" does not exist')
        if not issubclass(plugin, expected):
            raise ConfigurationError(where, name, f'plugin "{name}" does not extend {expected.__name__} plugin')
        if name in names[:index]:
            raise ConfigurationError(where, name, f'plugin "{name}" already registered as "{expected.__name__}"')
        yield name, plugin


def _arguments(
    profile: Profile,
    plugins: Mapping[str, type[Plugin]],
    document: DeschedulerConfiguration,
    path: str,
    catalogue: Catalogue,
) -> tuple[dict[str, Any], list[str]]:
    """Of every plugin that takes part, the defaults where none are given; those of others are decoded and ignored."""
    given: dict[str, Mapping[str, Any]] = {}
    remarks: list[str] = []
    for index, entry in enumerate(profile.plugin_config):
        where = f"{path}.pluginConfig[{index}]"
        if entry.name in given:
            raise ConfigurationError(f"{where}.name", entry.name, f"repeated config for plugin {entry.name}")
        given[entry.name] = entry.args
        if entry.name not in plugins:
            plugin = catalogue.find(entry.name, f"{where}.name")
            if plugin is not None:
                make_arguments(entry.name, plugin.args_type, entry.args, f"{where}.args", complete=False)
            remarks.append(f"{where}: no extension point enables plugin {entry.name}, its arguments have no effect")
    arguments: dict[str, Any] = {}
    positions = {entry.name: index for index, entry in enumerate(profile.plugin_config)}
    for name, plugin in plugins.items():
        where = f"{path}.pluginConfig[{positions.get(name, name)}].args"
        made, ignored = make_arguments(name, plugin.args_type, given.get(name, {}), where)
        remarks += ignored
        if isinstance(made, Arguments):
            made, adjusted = made.adjusted(document.descheduling_interval)
            remarks += [f"{where}.{text}" for text in adjusted]
        arguments[name] = made
    return arguments, remarks


def _address(text: str | None, path: str) -> ListenAddress:
    """``:port`` is every address, a bare IP has the default port. Loopback where nothing is said."""
    if text is None:
        return ListenAddress("127.0.0.1", DEFAULT_PORT, path)
    if ":" not in text and text not in ("", "0"):
        text = f"{text}:{DEFAULT_PORT}"
    return parse_listen_address(path, text)
