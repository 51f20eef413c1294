"""The configuration file: kubescheduler.config.k8s.io/v1, KubeSchedulerConfiguration, with its defaults."""

from __future__ import annotations

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
from koordinator.scheduler.configuration.argument_checks import check_range


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
