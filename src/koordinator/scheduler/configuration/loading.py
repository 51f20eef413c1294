"""Loads a configuration file and resolves it; every error is one ConfigurationError that names the field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_document, read_configuration_file
from koordinator.scheduler.configuration.argument_kinds import ARGUMENT_KINDS, OLD_VERSIONS, VERSION
from koordinator.scheduler.configuration.document import KubeSchedulerConfiguration, Profile, complete_document
from koordinator.scheduler.configuration.expansion import Expansion, expand
from koordinator.scheduler.configuration.points import Catalogue
from koordinator.scheduler.configuration.resolved import ProfileConfiguration, SchedulerConfiguration
from koordinator.scheduler.configuration.third_party import InstalledPlugins

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
        profiles.append(_profile(profile, expansion, path, catalogue))
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


def _profile(profile: Profile, expansion: Expansion, path: str, catalogue: Catalogue) -> ProfileConfiguration:
    return ProfileConfiguration(
        scheduler_name=profile.scheduler_name or "",
        order=expansion.order,
        plugins=expansion.plugins,
        arguments=_arguments(profile, expansion.plugins, path, catalogue),
    )


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
