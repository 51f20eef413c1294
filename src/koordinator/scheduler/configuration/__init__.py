"""KubeSchedulerConfiguration: read strictly, defaulted, validated, and resolved into profiles."""

from koordinator.scheduler.configuration.loading import (
    ProfileConfiguration,
    SchedulerConfiguration,
    default_configuration,
    load_configuration,
    not_built,
    parse_configuration,
    write_configuration,
)

__all__ = [
    "ProfileConfiguration",
    "SchedulerConfiguration",
    "default_configuration",
    "load_configuration",
    "not_built",
    "parse_configuration",
    "write_configuration",
]
