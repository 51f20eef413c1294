"""What the SLO configuration says about one node's resources, in the form in which they are decided."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import msgspec

from koordinator.api.node import Node
from koordinator.model.overcommit.policies import CapacityPolicy, Policies
from koordinator.model.slo_configuration.abnormality_limits import abnormality_limits
from koordinator.model.slo_configuration.colocation import node_colocation_strategy
from koordinator.model.slo_configuration.configuration import Configured, SLOConfiguration

S = TypeVar("S", bound=msgspec.Struct)


def node_policies(configuration: SLOConfiguration, node: Node, plugins: frozenset[str]) -> Policies:
    """Colocation has to be switched on for the cluster and for the node."""
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
        problem="; ".join(ignored),
    )


def _usable(configured: Configured[S], node: Node) -> S | None:
    return configured.strategies.for_labels(node.metadata.labels) if configured.available else None
