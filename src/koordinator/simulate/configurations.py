"""The configuration of a simulated scheduler: that of the cluster, plus a profile for kube-scheduler beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from koordinator.scheduler.configuration import SchedulerConfiguration, default_configuration
from koordinator.scheduler.configuration.loading import parse_configuration
from koordinator.simulate.snapshot import Snapshot

KUBE_SCHEDULER: Final = "default-scheduler"


def with_kube_scheduler(configuration: SchedulerConfiguration) -> SchedulerConfiguration:
    """The configuration with a profile for the pods of kube-scheduler, if it has none for ``default-scheduler``: then
    kube-scheduler runs beside this one, with the same plugins by default."""
    if any(profile.scheduler_name == KUBE_SCHEDULER for profile in configuration.profiles):
        return configuration
    return replace(configuration, profiles=(*configuration.profiles, *default_configuration().profiles))


def configuration_of(snapshot: Snapshot) -> tuple[SchedulerConfiguration, str]:
    """The configuration of the snapshot's own scheduler and its source; the default one if unknown. Raises
    ConfigurationError."""
    if not snapshot.scheduler_configuration:
        return default_configuration(), "the default configuration, since that of the cluster is not known"
    source = snapshot.configuration_source
    return parse_configuration(snapshot.scheduler_configuration, source), source
