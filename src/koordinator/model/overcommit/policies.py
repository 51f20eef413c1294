"""The merged configuration of one node, from which its plan is computed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from koordinator.api.adaptive_slo import AdaptiveSLOState
from koordinator.api.colocation_strategy import CALCULATE_BY_USAGE, ColocationStrategy
from koordinator.api.cpu_normalization import CPUNormalizationStrategy
from koordinator.api.node import Node
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.model.slo_adaptation import AdaptiveSLO, Lowered
from koordinator.model.slo_configuration.abnormality_limits import DEFAULT_LIMITS, AbnormalityLimits, abnormality_limits
from koordinator.model.slo_configuration.colocation import node_colocation_strategy
from koordinator.model.slo_configuration.configuration import Configured, SLOConfiguration
from koordinator.model.slo_configuration.node_slo import adaptive_slo

BATCH_RESOURCE: Final = "BatchResource"
MID_RESOURCE: Final = "MidResource"
CPU_NORMALIZATION: Final = "CPUNormalization"
RESOURCE_AMPLIFICATION: Final = "ResourceAmplification"
GPU_DEVICE_RESOURCE: Final = "GPUDeviceResource"
RDMA_DEVICE_RESOURCE: Final = "RDMADeviceResource"
FREE_RESOURCE: Final = "FreeResource"
PLUGINS: Final = (
    CPU_NORMALIZATION,
    RESOURCE_AMPLIFICATION,
    MID_RESOURCE,
    BATCH_RESOURCE,
    GPU_DEVICE_RESOURCE,
    RDMA_DEVICE_RESOURCE,
)
"""The plugins that run unless they are disabled, by the names of the flag and of the metrics, in the order they run
in."""
KNOWN_PLUGINS: Final = (*PLUGINS, FREE_RESOURCE)
"""With the one that also needs its feature gate."""
_CENTURY: Final = {"degrade_time_minutes": 52_594_920, "update_time_threshold_seconds": 3_155_695_200}
"""Longer durations, which the calendar may not support, mean the same as this: never."""
S = TypeVar("S", bound=msgspec.Struct)


class Problem(NamedTuple):
    """What a plugin could not do; the rest of the plan is valid."""

    plugin: str
    text: str


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """The colocation strategy of a node with all defaults. Percentages may be above 100."""

    enable: bool = False
    cpu_reclaim_threshold_percent: int = 60
    memory_reclaim_threshold_percent: int = 65
    cpu_calculate_policy: str = CALCULATE_BY_USAGE
    memory_calculate_policy: str = CALCULATE_BY_USAGE
    degrade_time_minutes: int = 15
    update_time_threshold_seconds: int = 300
    resource_diff_threshold: float = 0.1
    mid_reclaim_mode: str = ""
    mid_cpu_threshold_percent: int = 100
    mid_memory_threshold_percent: int = 100
    mid_unallocated_percent: int = 0
    mid_static_cpu_reserved_percent: int = 0
    mid_static_memory_reserved_percent: int = 0
    batch_cpu_threshold_percent: int | None = None
    batch_memory_threshold_percent: int | None = None

    @classmethod
    def from_strategy(cls, strategy: ColocationStrategy) -> Self:
        """Fields that are None there keep their defaults."""
        given: dict[str, Any] = {each.name: getattr(strategy, each.name) for each in fields(cls)}
        for name, most in _CENTURY.items():
            if given[name] is not None:
                given[name] = min(given[name], most)
        return cls(**{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Policies:
    """The configuration of one node. A policy that is None could not be decoded: what it controls stays as it is."""

    capacity: CapacityPolicy
    normalization: CPUNormalizationStrategy | None = field(default_factory=CPUNormalizationStrategy)
    amplification: ResourceAmplificationStrategy | None = field(default_factory=ResourceAmplificationStrategy)
    plugins: frozenset[str] = frozenset(PLUGINS)
    abnormality: AbnormalityLimits = DEFAULT_LIMITS
    adaptive_slo: AdaptiveSLO | None = None
    """None: the node is not adapted."""
    problem: str = ""
    """The part of the configuration that cannot be used, although the rest can."""

    def adapted(self, state: AdaptiveSLOState | None) -> Policies:
        """As they hold at the level of the node."""
        adaptive, policy = self.adaptive_slo, self.capacity
        if adaptive is None or state is None or not state.level:
            return self
        cpu, memory = policy.cpu_reclaim_threshold_percent, policy.memory_reclaim_threshold_percent
        capacity = replace(
            policy,
            cpu_reclaim_threshold_percent=adaptive.lowered(cpu, adaptive.cpu_reclaim, state),
            memory_reclaim_threshold_percent=adaptive.lowered(memory, adaptive.memory_reclaim, state),
        )
        return replace(self, capacity=capacity)

    def lowered_values(self, state: AdaptiveSLOState) -> tuple[Lowered, ...]:
        """What that changes, and the node's score by load."""
        before, now = self.capacity, self.adapted(state).capacity
        cpu = before.cpu_reclaim_threshold_percent, now.cpu_reclaim_threshold_percent
        memory = before.memory_reclaim_threshold_percent, now.memory_reclaim_threshold_percent
        return (
            Lowered("cpuReclaimThresholdPercent", *cpu),
            Lowered("memoryReclaimThresholdPercent", *memory),
            Lowered("scorePercent", 100, state.score_percent),
        )


def node_policies(configuration: SLOConfiguration, node: Node, plugins: frozenset[str]) -> Policies:
    """Colocation has to be enabled for the cluster and for the node."""
    colocation = configuration.colocation.strategies
    strategy, ignored = node_colocation_strategy(colocation, node.metadata)
    capacity = CapacityPolicy.from_strategy(strategy)
    if capacity.enable and not colocation.cluster.enable:
        capacity = replace(capacity, enable=False)
    return Policies(
        capacity=capacity,
        normalization=_usable(configuration.cpu_normalization, node),
        amplification=_usable(configuration.resource_amplification, node),
        plugins=plugins,
        abnormality=abnormality_limits(strategy.extensions),
        adaptive_slo=adaptive_slo(configuration, node) if capacity.enable else None,
        problem="; ".join(ignored),
    )


def _usable(configured: Configured[S], node: Node) -> S | None:
    return configured.strategies.for_labels(node.metadata.labels) if configured.available else None
