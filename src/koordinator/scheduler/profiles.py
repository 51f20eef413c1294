"""Builds the profiles of plugin instances from the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.scheduler.configuration import ProfileConfiguration, SchedulerConfiguration
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView


def build_profiles(
    configuration: SchedulerConfiguration, table: Mapping[str, type[Plugin]], view: ClusterView
) -> list[Profile]:
    """Make one instance of each plugin, of ``table`` or of another package, for each profile that names it."""
    classes = {**table, **{name: found.plugin for name, found in configuration.third_party.items()}}
    return [_build(profile, classes, view) for profile in configuration.profiles]


def _build(profile: ProfileConfiguration, table: Mapping[str, type[Plugin]], view: ClusterView) -> Profile:
    instances = {name: _make(profile, name, table[name], view) for name in profile.plugins if name in table}
    return Profile(profile.scheduler_name, instances, profile.order)


def _make(profile: ProfileConfiguration, name: str, plugin: type[Plugin], view: ClusterView) -> Plugin:
    args = profile.arguments.get(name)
    where = f"profile {profile.scheduler_name}: args of {name}"
    class_name = f"{plugin.__module__}.{plugin.__qualname__}"
    try:
        instance = plugin(args, view)
        parts = (instance, *instance.parts)
    except KoordinatorError:
        raise
    except Exception as error:
        allowed = f"{class_name} fails with them ({type(error).__name__}: {error})"
        raise ConfigurationError(where, args, allowed) from error
    for part in (type(each) for each in parts if getattr(each, "view", None) is not view):
        allowed = f"__init__ of {part.__module__}.{part.__qualname__} has to call super().__init__(args, view)"
        raise ConfigurationError(where, args, allowed)
    return instance
