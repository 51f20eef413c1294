"""From the configuration to profiles of plugin instances, and back to a file that shows all defaults."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import yaml

from koordinator.api.quantity import Quantity
from koordinator.base.durations import format_duration
from koordinator.scheduler.configuration import ProfileConfiguration, SchedulerConfiguration
from koordinator.scheduler.engine.framework import ClusterView, Plugin
from koordinator.scheduler.engine.profile import Profile


def build_profiles(
    configuration: SchedulerConfiguration, table: Mapping[str, type[Plugin]], view: ClusterView
) -> list[Profile]:
    """One instance of each plugin in ``table`` for each profile that names it."""
    return [_build(profile, table, view) for profile in configuration.profiles]


def _build(profile: ProfileConfiguration, table: Mapping[str, type[Plugin]], view: ClusterView) -> Profile:
    instances = {name: table[name](profile.arguments.get(name), view) for name in profile.plugins if name in table}
    return Profile(profile.scheduler_name, instances, profile.order)


def dump(configuration: SchedulerConfiguration) -> str:
    """The configuration as YAML with every default written out."""
    document = _plain(configuration.document)
    document["profiles"] = [
        {
            "schedulerName": profile.scheduler_name,
            "plugins": _points(profile),
            "pluginConfig": [
                {"name": name, "args": _arguments(name, arguments, configuration.document.api_version)}
                for name, arguments in sorted(profile.arguments.items())
            ],
        }
        for profile in configuration.profiles
    ]
    return yaml.safe_dump(document, sort_keys=False)


def _points(profile: ProfileConfiguration) -> dict[str, Any]:
    """Each point spelled out: what is enabled there and nothing else."""
    points: dict[str, Any] = {}
    for field in profile.order.__slots__:
        entries = getattr(profile.order, field)
        enabled = [
            {"name": entry} if isinstance(entry, str) else {"name": entry[0], "weight": entry[1]} for entry in entries
        ]
        first, *rest = field.split("_")
        points[first + "".join(part.capitalize() for part in rest)] = {"enabled": enabled, "disabled": [{"name": "*"}]}
    return points


def _arguments(name: str, arguments: Any, version: str) -> dict[str, Any]:
    return {**_plain(arguments), "apiVersion": version, "kind": f"{name}Args"}


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = ((field.encode_name, getattr(value, field.name)) for field in msgspec.structs.fields(value))
        return {name: _plain(item) for name, item in fields if item is not None}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, timedelta):
        return format_duration(value)
    return str(value) if isinstance(value, Quantity) else value
