"""Loads a configuration file and resolves it: profiles with the plugins of each point and their arguments. Every error
is one ConfigurationError that names the field."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api.component_configuration import plain_document
from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_document, read_configuration_file
from koordinator.scheduler.configuration.document import (
    FIELDS,
    Expansion,
    KubeSchedulerConfiguration,
    Profile,
    complete_document,
    expand,
)
from koordinator.scheduler.configuration.points import (
    ARGUMENT_KINDS,
    OLD_VERSIONS,
    VERSION,
    Catalogue,
    make_arguments,
)
from koordinator.scheduler.configuration.third_party import InstalledPlugins, ThirdPartyPlugin
from koordinator.scheduler.engine.profile import PluginOrder


@dataclass(frozen=True, slots=True)
class ProfileConfiguration:
    """The profile of one scheduler name: the plugins of each extension point, and their arguments (defaulted ones
    included)."""

    scheduler_name: str
    order: PluginOrder
    plugins: tuple[str, ...]
    """Every plugin that is enabled at any point, in the order of first mention."""
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """``document`` is the file that it was resolved from, with defaults."""

    document: KubeSchedulerConfiguration
    profiles: tuple[ProfileConfiguration, ...]
    warnings: tuple[str, ...]
    """Warnings about settings that will not have the effect that their author may expect."""
    third_party: Mapping[str, ThirdPartyPlugin]
    """The plugins of other packages that profiles name."""


def not_built(configuration: SchedulerConfiguration, built: Collection[str]) -> tuple[str, ...]:
    """The plugins that profiles enable and that are not implemented yet."""
    enabled = dict.fromkeys(name for profile in configuration.profiles for name in profile.plugins)
    return tuple(name for name in enabled if name not in built and name not in configuration.third_party)


# The configuration as an equivalent file without implicit defaults (``--write-config-to``). Each point is listed and
# multiPoint emptied, so that Go programs that read the file expand it to the same lists.


def write_configuration(configuration: SchedulerConfiguration) -> str:
    """YAML that ``parse_configuration`` reads back to the same profiles and settings."""
    document = plain_document(configuration.document)
    document["profiles"] = [_profile_document(profile) for profile in configuration.profiles]
    return yaml.safe_dump(document, sort_keys=False)


def _profile_document(profile: ProfileConfiguration) -> dict[str, Any]:
    at_points = {point: _enabled(profile, point) for point in FIELDS}
    listed = {entry["name"] for entries in at_points.values() for entry in entries}
    elsewhere = [name for name in profile.plugins if name not in listed]
    return {
        "schedulerName": profile.scheduler_name,
        "plugins": {
            **{point: {"enabled": entries, "disabled": _all()} for point, entries in at_points.items()},
            "multiPoint": {"enabled": [{"name": name} for name in elsewhere], "disabled": _all()},
        },
        "pluginConfig": [
            {"name": name, "args": {**plain_document(args), **_type_meta(name)}}
            for name, args in profile.arguments.items()
            if name in profile.plugins or name not in ARGUMENT_KINDS or args != make_arguments(name, {}, name)
        ],
    }


def _type_meta(name: str) -> dict[str, str]:
    # Arguments of a plugin of another package have no kind in this API group.
    return {"apiVersion": VERSION, "kind": f"{name}Args"} if name in ARGUMENT_KINDS else {}


def _all() -> list[dict[str, str]]:
    # A list of its own for each place, or YAML would write anchors.
    return [{"name": "*"}]


def _enabled(profile: ProfileConfiguration, point: str) -> list[dict[str, Any]]:
    order = profile.order
    if point == "score":
        return [{"name": name, "weight": weight} for name, weight in order.score]
    return [{"name": name} for name in getattr(order, FIELDS[point])]


KIND: Final = "KubeSchedulerConfiguration"
_CONFIG_MAP_KEY: Final = "koord-scheduler-config"
_OLD_FIELDS: Final = frozenset({"healthzBindAddress", "metricsBindAddress"})
"""Of v1beta2 only; the flags --address and --port set where health and metrics are served."""


def load_configuration(path: Path, installed: InstalledPlugins | None = None) -> SchedulerConfiguration:
    """Load a file: a KubeSchedulerConfiguration, or a ConfigMap that holds one under ``koord-scheduler-config``."""
    return parse_configuration(read_configuration_file("--config", path), str(path), installed)


def default_configuration(
    installed: InstalledPlugins | None = None, *, profiling: bool = True
) -> SchedulerConfiguration:
    """The configuration without a file: the upstream default profile."""
    document = KubeSchedulerConfiguration(api_version=VERSION, kind=KIND, enable_profiling=profiling)
    return _resolve(document, "", [], Catalogue(installed))


def parse_configuration(text: str, source: str, installed: InstalledPlugins | None = None) -> SchedulerConfiguration:
    """Decode, complete, check and resolve. ``source`` names the text in errors and warnings; ``installed`` are the
    plugins of other packages, by default those of this environment."""
    return resolve(load_document(text, source, KIND, _CONFIG_MAP_KEY), f"{source}: ", installed)


def resolve(
    document: Mapping[str, Any], root: str, installed: InstalledPlugins | None = None
) -> SchedulerConfiguration:
    """As ``parse_configuration``. ``root`` begins the paths in errors and warnings."""
    warnings: list[str] = []
    version = document.get("apiVersion")
    if version in OLD_VERSIONS:
        warnings.append(f"{root}{version} is read as {VERSION}")
        document = {name: value for name, value in document.items() if name not in _OLD_FIELDS}
    elif version != VERSION:
        raise ConfigurationError(f"{root}apiVersion", version, f"{VERSION} (older: {', '.join(OLD_VERSIONS)})")
    if document.get("kind") != KIND:
        raise ConfigurationError(f"{root}kind", document.get("kind"), KIND)
    decoded = decode_strictly({**document, "apiVersion": VERSION}, KubeSchedulerConfiguration, root)
    return _resolve(decoded, root, warnings, Catalogue(installed))


def _resolve(
    document: KubeSchedulerConfiguration, root: str, warnings: list[str], catalogue: Catalogue
) -> SchedulerConfiguration:
    document = complete_document(document, root)
    profiles = []
    for index, profile in enumerate(document.profiles):
        path = f"{root}profiles[{index}]"
        expansion = expand(profile.plugins, path, catalogue)
        arguments = _arguments(profile, expansion.plugins, path, catalogue)
        name = profile.scheduler_name or ""
        profiles.append(ProfileConfiguration(name, expansion.order, expansion.plugins, arguments))
        warnings.extend(expansion.warnings)
        warnings.extend(_sleepers(expansion, path, catalogue))
    _check_queue_sort(profiles, root)
    percentages = [document.percentage_of_nodes_to_score]
    percentages += [profile.percentage_of_nodes_to_score for profile in document.profiles]
    if any(percentages):
        warnings.append(f"{root}percentageOfNodesToScore has no effect: every node is looked at for every pod")
    return SchedulerConfiguration(document, tuple(profiles), tuple(warnings), catalogue.third_party)


def _sleepers(expansion: Expansion, path: str, catalogue: Catalogue) -> Iterator[str]:
    """Warnings about plugins that can keep a pod waiting and register no events for it."""
    for name in expansion.plugins:
        found = catalogue.third_party.get(name)
        if found and found.registers_no_events:
            yield (
                f"{path}: plugin {name} ({found.origin}) registers no events by events_to_register for the "
                "pods that it keeps waiting; they are retried only after --pod-max-in-unschedulable-pods-duration"
            )


def _check_queue_sort(profiles: Sequence[ProfileConfiguration], root: str) -> None:
    for index, profile in enumerate(profiles):
        if profile.order.queue_sort != profiles[0].order.queue_sort:
            allowed = f"the same as in the first profile ({', '.join(profiles[0].order.queue_sort)})"
            where = f"{root}profiles[{index}].plugins.queueSort"
            raise ConfigurationError(where, list(profile.order.queue_sort), allowed)


def _arguments(profile: Profile, plugins: Sequence[str], path: str, catalogue: Catalogue) -> dict[str, Any]:
    """The arguments of every plugin that takes some, the defaults where none are given."""
    arguments: dict[str, Any] = {}
    seen: set[str] = set()
    for index, entry in enumerate(profile.plugin_config):
        where = f"{path}.pluginConfig[{index}]"
        catalogue.points_of(entry.name, f"{where}.name")
        if entry.name in seen:
            raise ConfigurationError(f"{where}.name", entry.name, "arguments of a plugin may stand only once")
        seen.add(entry.name)
        if entry.args or entry.name in ARGUMENT_KINDS or entry.name in catalogue.third_party:
            arguments[entry.name] = catalogue.make_arguments(entry.name, entry.args, f"{where}.args")
    for name in (*ARGUMENT_KINDS, *(name for name in plugins if name in catalogue.third_party)):
        if name not in arguments:
            arguments[name] = catalogue.make_arguments(name, {}, f"{path}.pluginConfig[{name}].args")
    return arguments
