"""A configuration in which everything is resolved: profiles with the plugins of each point and their arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from koordinator.api.component_configuration import ClientConnection, LeaderElection, plain_document
from koordinator.scheduler.configuration.argument_kinds import ARGUMENT_KINDS, VERSION, make_arguments
from koordinator.scheduler.configuration.document import KubeSchedulerConfiguration
from koordinator.scheduler.configuration.points import POINTS
from koordinator.scheduler.configuration.third_party import ThirdPartyPlugin
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
    """The plugins that profiles enable and that are not implemented yet."""
    enabled = dict.fromkeys(name for profile in configuration.profiles for name in profile.plugins)
    return tuple(name for name in enabled if name not in built and name not in configuration.third_party)


# The configuration as an equivalent file without implicit defaults (``--write-config-to``). Each point is listed and
# multiPoint emptied, so that Go programs that read the file expand it to the same lists.


def write_configuration(configuration: SchedulerConfiguration) -> str:
    """YAML that ``parse_configuration`` reads back to the same profiles and settings."""
    document = plain_document(configuration.document)
    document["profiles"] = [_profile(profile) for profile in configuration.profiles]
    return yaml.safe_dump(document, sort_keys=False)


def _profile(profile: ProfileConfiguration) -> dict[str, Any]:
    at_points = {point: _enabled(profile, point) for point in POINTS}
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
    names = getattr(order, "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in point))
    return [{"name": name} for name in names]
