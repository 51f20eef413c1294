"""A configuration with nothing left to interpret."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from koordinator.api.component_configuration import ClientConnection, LeaderElection
from koordinator.scheduler.configuration.document import KubeSchedulerConfiguration
from koordinator.scheduler.configuration.third_party import ThirdPartyPlugin
from koordinator.scheduler.engine.profile import PluginOrder


@dataclass(frozen=True, slots=True)
class ProfileConfiguration:
    """One scheduler name: which plugins take part where, and their arguments (defaulted ones included)."""

    scheduler_name: str
    order: PluginOrder
    plugins: tuple[str, ...]
    """Every plugin that takes part anywhere, in the order of first mention."""
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """``document`` is what it came from, defaults filled in."""

    document: KubeSchedulerConfiguration
    profiles: tuple[ProfileConfiguration, ...]
    warnings: tuple[str, ...]
    """What was read and will not have the effect that its author may expect."""
    third_party: Mapping[str, ThirdPartyPlugin]
    """The plugins of other packages that profiles name."""

    @property
    def leader_election(self) -> LeaderElection:
        return self.document.leader_election

    @property
    def client_connection(self) -> ClientConnection:
        return self.document.client_connection

    @property
    def parallelism(self) -> int:
        return self.document.parallelism

    @property
    def pod_initial_backoff_seconds(self) -> int:
        return self.document.pod_initial_backoff_seconds

    @property
    def pod_max_backoff_seconds(self) -> int:
        return self.document.pod_max_backoff_seconds


def not_built(configuration: SchedulerConfiguration, built: Collection[str]) -> tuple[str, ...]:
    """The plugins that profiles ask for and that do not exist yet."""
    asked = dict.fromkeys(name for profile in configuration.profiles for name in profile.plugins)
    return tuple(name for name in asked if name not in built and name not in configuration.third_party)
