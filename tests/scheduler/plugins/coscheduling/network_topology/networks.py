"""Small networks: spines of blocks of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordinator.api.cluster_network_topology import (
    ClusterNetworkTopology,
    ClusterNetworkTopologySpec,
    NetworkTopologySpec,
)
from koordinator.api.meta import ObjectMeta
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import Tree, build_tree, layers_of, path_of

SPINE, BLOCK = "network/spine", "network/block"
SPEC = [
    NetworkTopologySpec("SpineLayer", "ClusterTopologyLayer", [SPINE]),
    NetworkTopologySpec("BlockLayer", "SpineLayer", [BLOCK, "network/tor"]),
    NetworkTopologySpec("NodeTopologyLayer", "BlockLayer"),
]


def place(text: str) -> dict[str, str]:
    """The labels of a node in ``spine/block``; either may be empty."""
    spine, _, block = text.partition("/")
    return {key: value for key, value in ((SPINE, spine), (BLOCK, block)) if value}


def tree_of(places: Mapping[str, str], spec: Sequence[NetworkTopologySpec] = SPEC) -> Tree:
    """``places``: node -> ``spine/block``."""
    layers = layers_of(spec)
    return build_tree(layers, [(name, path_of(layers, name, place(text))) for name, text in places.items()])


def cluster_network_topology(
    spec: Sequence[NetworkTopologySpec] = SPEC, name: str = "default"
) -> ClusterNetworkTopology:
    return ClusterNetworkTopology(
        metadata=ObjectMeta(name=name, uid=f"topology-{name}"), spec=ClusterNetworkTopologySpec(list(spec))
    )
