"""The SLO ConfigMap in force: for each key the last usable value.

A malformed key leaves that key as it was and affects no other; an event on the ConfigMap reports it. The value is
immutable: a controller uses the same configuration from start to end of a reconciliation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import msgspec

from koordinator.api.adaptive_slo import AdaptiveSLOStrategy
from koordinator.api.codec import DecodeError
from koordinator.api.colocation_strategy import ColocationStrategy
from koordinator.api.cpu_burst import CPUBurstStrategy
from koordinator.api.cpu_normalization import CPUNormalizationStrategy
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.api.resource_qos import ResourceQoSStrategy
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.api.system_strategy import SystemStrategy
from koordinator.model.slo_configuration import configuration_keys as keys
from koordinator.model.slo_configuration.configuration_keys import ConfigurationKey, HostApplications
from koordinator.model.slo_configuration.extensions import ConfiguredExtension, NodeSLOExtension
from koordinator.model.slo_configuration.node_strategies import StrategySet
from koordinator.model.slo_configuration.written_configuration import (
    read_configuration,
    strategies_of,
)

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class ConfigurationProblem:
    """A part of the ConfigMap that could not be used: the key, and the warning event about it."""

    key: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Configured(Generic[S]):
    """The resolved value of one key.

    ``available``: there was once a usable value, or no value is required; until then ``strategies``, which are the
    defaults, must not be acted upon. ``in_error``: the newest value could not be used, so that ``strategies`` may be
    outdated.
    """

    strategies: StrategySet[S]
    available: bool = False
    in_error: bool = False
    unknown: bool = False


def _defaults(key: ConfigurationKey[S]) -> Configured[S]:
    return Configured(StrategySet(key.defaults))


@dataclass(frozen=True)
class SLOConfiguration:
    """All keys of the ConfigMap. As constructed it holds the defaults and is not available."""

    colocation: Configured[ColocationStrategy] = field(default_factory=lambda: _defaults(keys.COLOCATION))
    resource_threshold: Configured[ResourceThresholdStrategy] = field(
        default_factory=lambda: _defaults(keys.RESOURCE_THRESHOLD)
    )
    resource_qos: Configured[ResourceQoSStrategy] = field(default_factory=lambda: _defaults(keys.RESOURCE_QOS))
    cpu_burst: Configured[CPUBurstStrategy] = field(default_factory=lambda: _defaults(keys.CPU_BURST))
    system: Configured[SystemStrategy] = field(default_factory=lambda: _defaults(keys.SYSTEM))
    host_applications: Configured[HostApplications] = field(default_factory=lambda: _defaults(keys.HOST_APPLICATION))
    cpu_normalization: Configured[CPUNormalizationStrategy] = field(
        default_factory=lambda: _defaults(keys.CPU_NORMALIZATION)
    )
    resource_amplification: Configured[ResourceAmplificationStrategy] = field(
        default_factory=lambda: _defaults(keys.RESOURCE_AMPLIFICATION)
    )
    adaptive_slo: Configured[AdaptiveSLOStrategy] = field(default_factory=lambda: _defaults(keys.ADAPTIVE_SLO))
    extensions: tuple[ConfiguredExtension, ...] = ()

    @classmethod
    def with_extensions(cls, extensions: tuple[NodeSLOExtension, ...]) -> SLOConfiguration:
        """The defaults, with the extensions of third parties."""
        return cls(extensions=tuple(ConfiguredExtension(each, each.default) for each in extensions))

    @property
    def node_slo_available(self) -> bool:
        """Whether the ConfigMap was ever read: then NodeSLOs can be written."""
        return self.resource_threshold.available

    def updated(self, data: Mapping[str, str] | None) -> tuple[SLOConfiguration, tuple[ConfigurationProblem, ...]]:
        """The configuration after the ConfigMap has become ``data``, None when there is no ConfigMap.

        Equal to the old one when nothing relevant changed; the problems are those of ``data`` alone.
        """
        problems: list[ConfigurationProblem] = []
        extensions = tuple(_updated_extension(each, data, problems) for each in self.extensions)
        new = replace(
            self,
            colocation=_updated(self.colocation, keys.COLOCATION, data, problems),
            resource_threshold=_updated(self.resource_threshold, keys.RESOURCE_THRESHOLD, data, problems),
            resource_qos=_updated(self.resource_qos, keys.RESOURCE_QOS, data, problems),
            cpu_burst=_updated(self.cpu_burst, keys.CPU_BURST, data, problems),
            system=_updated(self.system, keys.SYSTEM, data, problems),
            host_applications=_updated(self.host_applications, keys.HOST_APPLICATION, data, problems),
            cpu_normalization=_updated(self.cpu_normalization, keys.CPU_NORMALIZATION, data, problems),
            resource_amplification=_updated(self.resource_amplification, keys.RESOURCE_AMPLIFICATION, data, problems),
            adaptive_slo=_updated(self.adaptive_slo, keys.ADAPTIVE_SLO, data, problems),
            extensions=extensions,
        )
        return new, tuple(problems)


def _updated(
    old: Configured[S],
    key: ConfigurationKey[S],
    data: Mapping[str, str] | None,
    problems: list[ConfigurationProblem],
) -> Configured[S]:
    text = None if data is None else data.get(key.name)
    if text is None or (key.colocation and not text):
        return replace(_defaults(key), available=True, in_error=key.colocation and data is None)
    try:
        strategies, wrong = strategies_of(read_configuration(text, key), key)
    except DecodeError as error:
        problems.append(_problem(key, str(error)))
        unknown = old.unknown or not old.available
        return replace(old, available=old.available or key.usable_from_start, in_error=True, unknown=unknown)
    problems += [_problem(key, text) for text in wrong]
    return Configured(strategies, available=True)


def _problem(key: ConfigurationKey[Any], text: str) -> ConfigurationProblem:
    return ConfigurationProblem(key.name, key.reason, f"failed to unmarshal {key.title}, err: {text}")


def _updated_extension(
    old: ConfiguredExtension, data: Mapping[str, str] | None, problems: list[ConfigurationProblem]
) -> ConfiguredExtension:
    try:
        return old.updated(data)
    except Exception as error:
        # Third-party code: whatever it raises affects only its own part.
        text = f"failed to unmarshal the extension {old.extension.key}, err: {error}"
        problems.append(ConfigurationProblem(old.extension.key, keys.SLO_UNMARSHAL_FAILED, text))
        return old
