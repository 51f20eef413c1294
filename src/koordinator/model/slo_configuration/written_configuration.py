"""One key of the SLO ConfigMap as it was written, and its resolved strategies with defaults and the cluster's strategy
filled in.

The admission checks read what was written, the controllers act on the resolved strategies: both start here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from koordinator.api.codec import DecodeError
from koordinator.api.meta import FreeForm, LabelSelector, WireStruct
from koordinator.model.label_selector import CompiledSelector, SelectorError
from koordinator.model.slo_configuration.configuration_keys import ConfigurationKey
from koordinator.model.slo_configuration.documents import Document, Given, overridden, read_given, read_object
from koordinator.model.slo_configuration.node_strategies import NodeStrategy, StrategySet, compile_node_selector

S = TypeVar("S", bound=msgspec.Struct)


class _Inline(WireStruct):
    node_configs: list[FreeForm] = []


class _Separate(WireStruct):
    cluster_strategy: FreeForm | None = None
    node_strategies: list[FreeForm] = []


class _Profile(WireStruct):
    name: str = ""
    node_selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class WrittenNodeStrategy(Generic[S]):
    """A strategy for a group of nodes: its name, its node selector, the fields that it sets."""

    name: str
    selector: LabelSelector | None
    given: Given[S]


@dataclass(frozen=True, slots=True)
class WrittenConfiguration(Generic[S]):
    """The fields that are set for the cluster, and for groups of nodes in the order of their precedence."""

    cluster: Given[S]
    nodes: tuple[WrittenNodeStrategy[S], ...] = ()


class UnusableConfigurationError(DecodeError):
    """The cluster's strategy has an invalid value."""


def read_configuration(text: str, key: ConfigurationKey[S]) -> WrittenConfiguration[S]:
    """Decode the fields that ``text`` sets. Raises DecodeError for malformed JSON, or for types that the key does not
    have."""
    document = read_object(text)
    if key.inline:
        cluster = read_given(document, key.strategy)
        entries, list_name = read_given(document, _Inline).values.node_configs, "nodeConfigs"
    else:
        separate = read_given(document, _Separate).values
        cluster = read_given(separate.cluster_strategy or {}, key.strategy, "clusterStrategy")
        entries, list_name = separate.node_strategies, "nodeStrategies"
    nodes = [_read_node(entry, key, f"{list_name}[{position}]") for position, entry in enumerate(entries)]
    return WrittenConfiguration(cluster, tuple(nodes))


def merged_cluster(written: WrittenConfiguration[S], key: ConfigurationKey[S]) -> S:
    """The defaults, overridden by what is written for the cluster."""
    return overridden(key.defaults, written.cluster)


def merged_node(entry: WrittenNodeStrategy[S], cluster: S, key: ConfigurationKey[S]) -> S:
    """The cluster's strategy, overridden by what is written for a group of nodes."""
    return overridden(key.defaults if key.replaces else cluster, entry.given)


def strategies_of(written: WrittenConfiguration[S], key: ConfigurationKey[S]) -> tuple[StrategySet[S], list[str]]:
    """The strategies to act upon, and the errors in those of groups of nodes.

    A group whose strategy is invalid gets the cluster's; one whose selector is invalid gets no nodes. Raises
    UnusableConfigurationError for the cluster's own.
    """
    cluster = merged_cluster(written, key)
    errors = key.errors(cluster)
    if errors:
        raise UnusableConfigurationError(f"the strategy of the cluster: {errors[0]}")
    nodes: list[NodeStrategy[S]] = []
    problems: list[str] = []
    for position, entry in enumerate(written.nodes):
        label = f"the strategy {entry.name!r} of nodes (number {position})"
        strategy = merged_node(entry, cluster, key)
        errors = key.errors(strategy)
        if errors:
            problems.append(f"{label}: {errors[0]}; the strategy of the cluster applies instead")
            strategy = cluster
        nodes.append(NodeStrategy(entry.name, _selector(entry, label, problems), strategy))
    return StrategySet(cluster, tuple(nodes)), problems


def _selector(entry: WrittenNodeStrategy[Any], label: str, problems: list[str]) -> CompiledSelector | None:
    try:
        return compile_node_selector(entry.selector)
    except SelectorError as error:
        problems.append(f"{label}: {error}; it is skipped")
        return None


def _read_node(entry: Document, key: ConfigurationKey[S], path: str) -> WrittenNodeStrategy[S]:
    profile = read_given(entry, _Profile, path).values
    return WrittenNodeStrategy(profile.name, profile.node_selector, read_given(entry, key.strategy, path))
