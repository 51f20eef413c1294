"""From the configuration to profiles of plugin instances."""

from __future__ import annotations

from collections.abc import Mapping

from koordinator.scheduler.configuration import ProfileConfiguration, SchedulerConfiguration
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView


def build_profiles(
    configuration: SchedulerConfiguration, table: Mapping[str, type[Plugin]], view: ClusterView
) -> list[Profile]:
    """One instance of each plugin in ``table`` for each profile that names it."""
    return [_build(profile, table, view) for profile in configuration.profiles]


def _build(profile: ProfileConfiguration, table: Mapping[str, type[Plugin]], view: ClusterView) -> Profile:
    instances = {name: table[name](profile.arguments.get(name), view) for name in profile.plugins if name in table}
    return Profile(profile.scheduler_name, instances, profile.order)
