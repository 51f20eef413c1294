"""The NodeSLO of one node: from each key of the SLO ConfigMap the strategy that is the node's (pkg/slo-controller/
nodeslo, getNodeSLOSpec)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from koordinator.api.adaptive_slo import AdaptiveSLOState, read_state
from koordinator.api.annotations import ADAPTIVE_SLO, NETWORK_BANDWIDTH
from koordinator.api.codec import decode_any, encode
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import EXTENSIONS_MEMBER, FreeForm
from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.quantity import QuantityError, parse_quantity
from koordinator.api.system_strategy import SystemStrategy
from koordinator.model.slo_adaptation import AdaptiveSLO, Lowered
from koordinator.model.slo_configuration.configuration import Configured, SLOConfiguration
from koordinator.model.slo_configuration.configuration_keys import HostApplications

S = TypeVar("S", bound=msgspec.Struct)

RESOURCE_THRESHOLD_PART: Final = "getResourceThresholdSpec"
RESOURCE_QOS_PART: Final = "getResourceQOSSpec"
CPU_BURST_PART: Final = "getCPUBurstConfigSpec"
SYSTEM_PART: Final = "getSystemConfigSpec"
HOST_APPLICATION_PART: Final = "getHostApplicationConfig"
EXTENSION_PART: Final = "getNodeSLOExtension"
"""Its name in the metric of parsed parts."""

_NO_EXTENSIONS: Final[FreeForm] = {EXTENSIONS_MEMBER: {}}


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """A part of a NodeSLO for which something on the node could not be used, and what was used instead."""

    part: str
    message: str


def node_slo_spec(
    configuration: SLOConfiguration, node: Node, current: NodeSLOSpec | None = None
) -> tuple[NodeSLOSpec, tuple[NodeProblem, ...]]:
    """The spec of a node's NodeSLO, and what could not be used for it.

    Of ``current``, the present spec, extensions are kept that no registered extension handles, and the part of a key
    for which no usable value has been seen: it was in force before this process began.
    """
    labels, known = node.metadata.labels, current or NodeSLOSpec()
    problems: list[NodeProblem] = []
    system = _strategy(configuration.system, labels, known.system_strategy)
    hosts = HostApplications(known.host_applications) if current is not None else None
    threshold = _strategy(configuration.resource_threshold, labels, known.resource_used_threshold_with_be)
    burst = _strategy(configuration.cpu_burst, labels, known.cpu_burst_strategy)
    adaptive = adaptive_slo(configuration, node)
    state = read_state(node.metadata.annotations) if adaptive is not None else None
    if adaptive is not None and state is not None and state.level:
        # What was in force before this process began was lowered then.
        threshold = threshold if configuration.resource_threshold.unknown else adaptive.threshold(threshold, state)
        burst = burst if configuration.cpu_burst.unknown else adaptive.burst(burst, state)
    spec = NodeSLOSpec(
        resource_used_threshold_with_be=threshold,
        resource_qos_strategy=_strategy(configuration.resource_qos, labels, known.resource_qos_strategy),
        cpu_burst_strategy=burst,
        system_strategy=_with_bandwidth(system, node, problems),
        host_applications=_strategy(configuration.host_applications, labels, hosts).applications,
        extensions=_extensions(configuration, node, current, problems),
    )
    return spec, tuple(problems)


def adaptive_slo(configuration: SLOConfiguration, node: Node) -> AdaptiveSLO | None:
    """How the node is adapted; None where that is switched off."""
    strategy = configuration.adaptive_slo.strategies.for_labels(node.metadata.labels)
    if configuration.adaptive_slo.unknown and ADAPTIVE_SLO in node.metadata.annotations:
        # A value that cannot be read any more has switched it on before this process began: the defaults continue.
        strategy = msgspec.structs.replace(strategy, enable=True)
    return AdaptiveSLO.of(strategy)


def lowered_values(configuration: SLOConfiguration, node: Node, state: AdaptiveSLOState) -> tuple[Lowered, ...]:
    """What a state of the node changes in its NodeSLO."""
    adaptive, labels = adaptive_slo(configuration, node), node.metadata.labels
    if adaptive is None:
        return ()
    threshold = configuration.resource_threshold.strategies.for_labels(labels)
    burst = configuration.cpu_burst.strategies.for_labels(labels)
    suppress = threshold.cpu_suppress_threshold_percent
    suppress_now = adaptive.threshold(threshold, state).cpu_suppress_threshold_percent
    quota, quota_now = burst.cfs_quota_burst_percent, adaptive.burst(burst, state).cfs_quota_burst_percent
    values = (
        ("cpuSuppressThresholdPercent", suppress, suppress_now),
        ("cfsQuotaBurstPercent", quota, quota_now),
    )
    return tuple(
        Lowered(name, configured, now) for name, configured, now in values if configured is not None and now is not None
    )


def _strategy(configured: Configured[S], labels: Mapping[str, str], current: S | None) -> S:
    if configured.unknown and current is not None:
        return current
    return configured.strategies.for_labels(labels)


def same_node_slo_spec(one: NodeSLOSpec, other: NodeSLOSpec) -> bool:
    """Whether two specs are equivalent: defaults of the API server and omitted empty fields make no difference, so that
    an object is not written again and again for them."""
    return one == other or _comparable(one) == _comparable(other)


def _comparable(spec: NodeSLOSpec) -> NodeSLOSpec:
    filled = with_defaults(spec)
    return filled if filled.extensions else msgspec.structs.replace(filled, extensions=_NO_EXTENSIONS)


def _with_bandwidth(strategy: SystemStrategy, node: Node, problems: list[NodeProblem]) -> SystemStrategy:
    """The node's own total bandwidth, in bits per second, takes precedence over the ConfigMap's."""
    text = node.metadata.annotations.get(NETWORK_BANDWIDTH)
    if text is None:
        return strategy
    try:
        return msgspec.structs.replace(strategy, total_network_bandwidth=parse_quantity(text))
    except QuantityError as error:
        message = f"annotation {NETWORK_BANDWIDTH}: {error}; the configured bandwidth applies"
        problems.append(NodeProblem(SYSTEM_PART, message))
        return strategy


def _extensions(
    configuration: SLOConfiguration, node: Node, current: NodeSLOSpec | None, problems: list[NodeProblem]
) -> FreeForm:
    present = current.extensions.get(EXTENSIONS_MEMBER) if current is not None and current.extensions else None
    if not configuration.extensions:
        return {EXTENSIONS_MEMBER: present} if present else _NO_EXTENSIONS
    members: dict[str, Any] = dict(present or {})
    for configured in configuration.extensions:
        key = configured.extension.key
        try:
            part = decode_any(encode(configured.extension.for_node(node, configured.configuration)))
        except Exception as error:
            # Third-party code: whatever it raises affects only its own part.
            problems.append(NodeProblem(EXTENSION_PART, f"extension {key}: {error}; what was there before stays"))
            continue
        if part is None:
            members.pop(key, None)
        else:
            members[key] = part
    return {EXTENSIONS_MEMBER: members}
