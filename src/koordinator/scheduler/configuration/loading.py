"""From a file to a resolved configuration; every mistake is one ConfigurationError that names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from koordinator.api.codec import DecodeError, convert
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.argument_checks import check_balanced, check_fit, complete_load_aware
from koordinator.scheduler.configuration.arguments import (
    Arguments,
    LoadAwareSchedulingArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
)
from koordinator.scheduler.configuration.document import KubeSchedulerConfiguration, Profile
from koordinator.scheduler.configuration.expansion import expand, plugins_of
from koordinator.scheduler.configuration.points import KNOWN_PLUGINS
from koordinator.scheduler.configuration.resolved import ProfileConfiguration, SchedulerConfiguration
from koordinator.scheduler.configuration.strict_yaml import load_documents

_GROUP: Final = "kubescheduler.config.k8s.io"
_VERSION: Final = f"{_GROUP}/v1"
_OLD_VERSIONS: Final = (f"{_GROUP}/v1beta2", f"{_GROUP}/v1beta3")
_KIND: Final = "KubeSchedulerConfiguration"
_CONFIG_MAP_KEY: Final = "koord-scheduler-config"
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.+?)`(?: - at `(.+?)`)?")

_Complete = Callable[[Any, str], Any]
_ARGUMENTS: Final[Mapping[str, tuple[type[Arguments], _Complete]]] = {
    "NodeResourcesFit": (NodeResourcesFitArgs, check_fit),
    "NodeResourcesBalancedAllocation": (NodeResourcesBalancedAllocationArgs, check_balanced),
    "NodeAffinity": (NodeAffinityArgs, lambda args, path: args),
    "LoadAwareScheduling": (LoadAwareSchedulingArgs, complete_load_aware),
}


def load_configuration(path: Path) -> SchedulerConfiguration:
    """Read a file: a KubeSchedulerConfiguration, or a ConfigMap that holds one under ``koord-scheduler-config``."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError("--config", str(path), f"a readable YAML file ({error})") from error
    return parse_configuration(text, str(path))


def default_configuration() -> SchedulerConfiguration:
    """What runs without a file: the upstream default profile."""
    return _resolve(KubeSchedulerConfiguration(api_version=_VERSION, kind=_KIND), [])


def parse_configuration(text: str, source: str) -> SchedulerConfiguration:
    """Decode, fill in, check and resolve. ``source`` names the text in errors."""
    warnings: list[str] = []
    document = _document(text, source)
    version = document.get("apiVersion")
    if version in _OLD_VERSIONS:
        warnings.append(f"{source}: {version} is read as {_VERSION}")
    elif version != _VERSION:
        raise ConfigurationError(f"{source}: apiVersion", version, f"{_VERSION} (older: {', '.join(_OLD_VERSIONS)})")
    if document.get("kind") != _KIND:
        raise ConfigurationError(f"{source}: kind", document.get("kind"), _KIND)
    return _resolve(decode_strictly(document, KubeSchedulerConfiguration, source), warnings)


def decode_strictly(document: Any, expected: type[Any], path: str) -> Any:
    """Turn plain values into ``expected``; an unknown field or a wrong type is a ConfigurationError with its path."""
    try:
        return convert(document, expected)
    except DecodeError as error:
        unknown = _UNKNOWN_FIELD.search(str(error))
        if unknown:
            field, parent = unknown.groups()
            where = _joined(path, f"{parent or '$'}.{field}")
            raise ConfigurationError(where, field, "no such field") from error
        message, _, where = str(error).partition(" - at `")
        raise ConfigurationError(_joined(path, where.rstrip("`") or "$"), "its value", message) from error


def _joined(path: str, inner: str) -> str:
    return (
        path + inner.removeprefix("$") if inner.startswith("$[") else f"{path}: {inner.removeprefix('$').lstrip('.')}"
    )


def _document(text: str, source: str) -> dict[str, Any]:
    documents = load_documents(text, source)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise ConfigurationError(source, f"{len(documents)} documents", f"one {_KIND}")
    document: dict[str, Any] = documents[0]
    if document.get("kind") == "ConfigMap":
        inner = (document.get("data") or {}).get(_CONFIG_MAP_KEY)
        if not isinstance(inner, str):
            raise ConfigurationError(f"{source}: data[{_CONFIG_MAP_KEY}]", inner, f"a {_KIND} as text")
        return _document(inner, f"{source}: data[{_CONFIG_MAP_KEY}]")
    return document


def _resolve(document: KubeSchedulerConfiguration, warnings: list[str]) -> SchedulerConfiguration:
    _check(document)
    given = document.profiles or [Profile()]
    profiles = tuple(_profile(profile, f"profiles[{index}]") for index, profile in enumerate(given))
    _check_profiles(profiles)
    percentages = [document.percentage_of_nodes_to_score, *(each.percentage_of_nodes_to_score for each in given)]
    if any(percentages):
        warnings.append("percentageOfNodesToScore has no effect: every node is looked at for every pod")
    return SchedulerConfiguration(document, profiles, tuple(warnings))


def _check(document: KubeSchedulerConfiguration) -> None:
    if document.extenders:
        raise ConfigurationError("extenders", document.extenders, "none: scheduler extenders are not supported")
    for field, value in (
        ("parallelism", document.parallelism),
        ("podInitialBackoffSeconds", document.pod_initial_backoff_seconds),
    ):
        if value <= 0:
            raise ConfigurationError(field, value, "more than 0")
    if document.pod_max_backoff_seconds < document.pod_initial_backoff_seconds:
        raise ConfigurationError(
            "podMaxBackoffSeconds",
            document.pod_max_backoff_seconds,
            f"at least podInitialBackoffSeconds ({document.pod_initial_backoff_seconds})",
        )
    election = document.leader_election
    if election.leader_elect and election.resource_lock != "leases":
        raise ConfigurationError("leaderElection.resourceLock", election.resource_lock, "leases")
    if election.leader_elect and election.lease_duration <= election.renew_deadline:
        raise ConfigurationError(
            "leaderElection.leaseDuration", str(election.lease_duration), "more than leaderElection.renewDeadline"
        )


def _check_profiles(profiles: tuple[ProfileConfiguration, ...]) -> None:
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}]"
        if not profile.scheduler_name or profile.scheduler_name in seen:
            allowed = "a name that no other profile has"
            raise ConfigurationError(f"{path}.schedulerName", profile.scheduler_name, allowed)
        seen.add(profile.scheduler_name)
        if profile.order.queue_sort != profiles[0].order.queue_sort:
            allowed = f"the same as in the first profile ({', '.join(profiles[0].order.queue_sort)})"
            raise ConfigurationError(f"{path}.plugins.queueSort", list(profile.order.queue_sort), allowed)


def _profile(profile: Profile, path: str) -> ProfileConfiguration:
    order = expand(profile.plugins, path)
    arguments: dict[str, Any] = {}
    for index, entry in enumerate(profile.plugin_config):
        where = f"{path}.pluginConfig[{index}]"
        if entry.name not in KNOWN_PLUGINS:
            raise ConfigurationError(f"{where}.name", entry.name, "the name of a plugin")
        if entry.name in arguments:
            raise ConfigurationError(f"{where}.name", entry.name, "arguments of a plugin may stand only once")
        arguments[entry.name] = _arguments(entry.name, entry.args, f"{where}.args")
    for name in _ARGUMENTS:
        if name not in arguments:
            arguments[name] = _arguments(name, {}, f"{path}.pluginConfig")
    return ProfileConfiguration(profile.scheduler_name, order, plugins_of(profile.plugins), arguments)


def _arguments(name: str, document: dict[str, Any], path: str) -> Any:
    kind = document.get("kind")
    if kind is not None and kind != f"{name}Args":
        raise ConfigurationError(f"{path}.kind", kind, f"{name}Args")
    if name not in _ARGUMENTS:
        # Of a plugin that is not built yet; it is named in a warning and its arguments wait for it.
        return document
    expected, complete = _ARGUMENTS[name]
    return complete(decode_strictly(document, expected, path), path)
