"""The webhooks' checks of the SLO ConfigMap, and of nodes that its strategies select.

Keys are checked one after the other and the first error is reported, in the order and with the texts of the original
(pkg/webhook/cm/plugins/sloconfig); a key that did not change, or is empty, is not checked. Only the last check needs
nodes, so that the caller lists them only if there is something to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from koordinator.api.codec import DecodeError
from koordinator.api.colocation_strategy import ColocationStrategy
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.model.label_selector import SelectorError
from koordinator.model.slo_configuration import configuration_keys as keys
from koordinator.model.slo_configuration.abnormality_limits import abnormality_errors
from koordinator.model.slo_configuration.configuration_keys import ConfigurationKey
from koordinator.model.slo_configuration.documents import overridden
from koordinator.model.slo_configuration.field_ranges import range_errors
from koordinator.model.slo_configuration.network_bandwidth_check import check_network_bandwidth
from koordinator.model.slo_configuration.node_strategies import NodeStrategy, StrategySet, compile_node_selector
from koordinator.model.slo_configuration.quality_of_service_defaults import RECOMMENDED_RESOURCE_QOS
from koordinator.model.slo_configuration.refusal import (
    RefusalReason,
    RefusedConfigurationError,
    conflict,
    refused,
)
from koordinator.model.slo_configuration.selector_overlap import label_demands, shared_node
from koordinator.model.slo_configuration.written_configuration import (
    WrittenConfiguration,
    WrittenNodeStrategy,
    read_configuration,
)


@dataclass(frozen=True, slots=True)
class _Words:
    """The original's name of a key when it cannot be parsed, and the Go types on the way to its fields."""

    parse: str
    root: str
    cluster: str
    nodes: str
    node: str


_WORDS: Final[Mapping[str, _Words]] = MappingProxyType(
    {
        keys.COLOCATION.name: _Words(
            "colocation", "ColocationCfg", "ColocationStrategy", "NodeConfigs", "ColocationStrategy"
        ),
        keys.RESOURCE_THRESHOLD.name: _Words(
            "resourceThreshold",
            "ResourceThresholdCfg",
            "ClusterStrategy",
            "NodeStrategies",
            "ResourceThresholdStrategy",
        ),
        keys.RESOURCE_QOS.name: _Words(
            "ResourceQOS", "ResourceQOSCfg", "ClusterStrategy", "NodeStrategies", "ResourceQOSStrategy"
        ),
        keys.SYSTEM.name: _Words("System", "SystemCfg", "ClusterStrategy", "NodeStrategies", "SystemStrategy"),
        keys.CPU_BURST.name: _Words("CpuBurst", "CPUBurstCfg", "ClusterStrategy", "NodeStrategies", "CPUBurstStrategy"),
        keys.HOST_APPLICATION.name: _Words(
            "HostApplication", "HostApplicationCfg", "HostApplications", "NodeConfigs", "HostApplications"
        ),
        keys.CPU_NORMALIZATION.name: _Words(
            "CPUNormalization",
            "CPUNormalizationCfg",
            "CPUNormalizationStrategy",
            "NodeConfigs",
            "CPUNormalizationStrategy",
        ),
        keys.RESOURCE_AMPLIFICATION.name: _Words(
            "ResourceAmplification",
            "ResourceAmplificationCfg",
            "ResourceAmplificationStrategy",
            "NodeConfigs",
            "ResourceAmplificationStrategy",
        ),
        keys.ADAPTIVE_SLO.name: _Words(
            "AdaptiveSLO", "AdaptiveSLOCfg", "ClusterStrategy", "NodeStrategies", "AdaptiveSLOStrategy"
        ),
    }
)
_BUILT_IN: Final[Mapping[str, msgspec.Struct]] = MappingProxyType({keys.RESOURCE_QOS.name: RECOMMENDED_RESOURCE_QOS})
"""What applies on a node to fields that the NodeSLO leaves out, where that is more than the key's defaults."""
_KEYS_OF_NODES: Final = (
    keys.COLOCATION,
    keys.RESOURCE_THRESHOLD,
    keys.RESOURCE_QOS,
    keys.SYSTEM,
    keys.CPU_BURST,
    keys.ADAPTIVE_SLO,
)
"""Overlaps in the other keys were never refused; refusing them now would block changes of existing nodes."""


@dataclass(frozen=True, slots=True)
class KeySelection:
    """The strategies of one key that must not select the same node: their names and selectors."""

    key: str
    strategies: StrategySet[None]

    def check_node(self, node: ObjectMeta) -> None:
        """Raises RefusedConfigurationError when more than one strategy selects ``node``."""
        names = [strategy.name for strategy in self.strategies.matching(node.labels)]
        if len(names) > 1:
            raise conflict(RefusalReason.NODE_CONFLICT, self.key, names, [node.name])


def check_config_map(
    data: Mapping[str, str], old: Mapping[str, str] | None, *, config_map: str, names_required: bool
) -> tuple[KeySelection, ...]:
    """Check the keys that changed from ``old`` (None: the ConfigMap is new) to ``data``.

    ``config_map`` is namespace/name, ``names_required`` whether strategies need names of their own. Returns the
    selections that all nodes must then be checked against by ``check_nodes``; none for most configurations. Raises
    RefusedConfigurationError.
    """
    selections = []
    for key in keys.ALL_KEYS:
        text = data.get(key.name)
        if text and (old is None or old.get(key.name) != text):
            written = _read(key, text, config_map)
            selection = KeySelection(key.name, _selectors(key, written))
            _check_ranges(key, written)
            if key is keys.RESOURCE_QOS:
                check_network_bandwidth(written, _read(keys.SYSTEM, data.get(keys.SYSTEM.name) or "{}", config_map))
            if names_required:
                _check_names(key, written)
            _check_overlap(key, written, selection)
            selections.append(selection)
    return tuple(selection for selection in selections if len(selection.strategies.nodes) > 1)


def check_nodes(selections: Iterable[KeySelection], nodes: Iterable[ObjectMeta]) -> None:
    """Raises RefusedConfigurationError for the first node that more than one strategy of a key selects."""
    checked = tuple(selections)
    for node in nodes:
        for selection in checked:
            selection.check_node(node)


def check_node_labels(data: Mapping[str, str], node: ObjectMeta) -> None:
    """Check a change of a node's labels; a malformed key is skipped. Raises RefusedConfigurationError."""
    for key in _KEYS_OF_NODES:
        try:
            selection = KeySelection(key.name, _selectors(key, read_configuration(data.get(key.name, ""), key)))
        except (DecodeError, RefusedConfigurationError):
            continue
        selection.check_node(node)


def _read(key: ConfigurationKey[Any], text: str, config_map: str) -> WrittenConfiguration[Any]:
    try:
        return read_configuration(text, key)
    except DecodeError as error:
        name = _WORDS[key.name].parse
        message = f"Failed to parse {name} config in configmap {config_map}, err: {error}"
        raise refused(RefusalReason.PARSE_FAILED, message) from error


def _selectors(key: ConfigurationKey[Any], written: WrittenConfiguration[Any]) -> StrategySet[None]:
    return StrategySet(None, tuple(_selector(key, node) for node in written.nodes))


def _selector(key: ConfigurationKey[Any], node: WrittenNodeStrategy[Any]) -> NodeStrategy[None]:
    if node.selector in (None, LabelSelector()):
        text = f"nodeConfigs NodeSelector must not empty error! configType: {key.name},nodeConfig name:{node.name}"
        raise refused(RefusalReason.INVALID, text)
    try:
        return NodeStrategy(node.name, compile_node_selector(node.selector), None)
    except SelectorError as error:
        selector = msgspec.json.encode(node.selector).decode()
        text = (
            f"failed to parse node selector {selector},configType: {key.name},nodeConfig name:{node.name}, err: {error}"
        )
        raise refused(RefusalReason.INVALID, text) from error


def _check_ranges(key: ConfigurationKey[Any], written: WrittenConfiguration[Any]) -> None:
    words = _WORDS[key.name]
    cluster = overridden(_BUILT_IN.get(key.name, key.defaults), written.cluster)
    at = f"{words.root}.{words.cluster}"
    errors = range_errors(written.cluster.values, cluster, at) | _extension_errors(cluster, at)
    for position, node in enumerate(written.nodes):
        in_force = overridden(key.defaults if key.replaces else cluster, node.given)
        at = f"{words.root}.{words.nodes}[{position}].{words.node}"
        errors |= range_errors(node.given.values, in_force, at) | _extension_errors(in_force, at)
    if errors:
        raise refused(RefusalReason.INVALID, dict(sorted(errors.items())))


def _extension_errors(strategy: Any, at: str) -> dict[str, str]:
    """Errors in fields that the original does not have; other keys have none."""
    errors = abnormality_errors(strategy.extensions) if isinstance(strategy, ColocationStrategy) else []
    return {f"{at}.{error.path}": error.message for error in errors}


def _check_names(key: ConfigurationKey[Any], written: WrittenConfiguration[Any]) -> None:
    seen = set()
    for node in written.nodes:
        if not node.name:
            raise refused(RefusalReason.INVALID, f"nodeConfig Name need! configType:{key.name}")
        if node.name in seen:
            text = f"nodeConfig Name confilict, configType:{key.name},nodeConfig Name:{node.name}! "
            raise refused(RefusalReason.INVALID, text)
        seen.add(node.name)


def _check_overlap(key: ConfigurationKey[Any], written: WrittenConfiguration[Any], selection: KeySelection) -> None:
    demands = [label_demands(node.selector) for node in written.nodes if node.selector is not None]
    for position, one in enumerate(demands):
        for other_position, other in enumerate(demands):
            labels = shared_node(one, other) if position != other_position else None
            if labels is not None:
                names = [strategy.name for strategy in selection.strategies.matching(labels)]
                raise conflict(RefusalReason.OVERLAP, key.name, names)
