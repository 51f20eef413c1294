"""Which sets of NUMA nodes would do for a pod, resource by resource. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordinator.api.resource_names import CPU
from koordinator.model.numa_topology.hints import (
    Hints,
    NUMATopologyHint,
    NUMATopologyPolicy,
    mask_of,
    masks_of,
    numa_nodes_of,
)
from koordinator.scheduler.plugins.node_numa_resource.allocation import Amounts, amplified
from koordinator.scheduler.plugins.node_numa_resource.reserved import Choice
from koordinator.scheduler.plugins.node_numa_resource.scoring import NUMAScorer


def hints_of(choice: Choice, policy: NUMATopologyPolicy, scorer: NUMAScorer, *, ignoring: bool) -> Hints:
    """The hints of a pod on a node that has zones. ``ignoring`` as in Choice.from_any."""
    zones, request = choice.room.zones.amounts, choice.request
    available = choice.unreserved.available
    asked = amplified_requests(choice)
    masks: dict[str, list[tuple[int, int]]] = {}
    lacking: dict[str, int] = {}
    for mask in masks_of(choice.room.zones.numa_nodes):
        nodes = numa_nodes_of(mask)
        for name in request.amounts:
            if name not in masks and any(name in zones[node] for node in nodes):
                masks[name] = []
                lacking[name] = mask_of(node for node in zones if not available.get(node, {}).get(name))
        if not choice.fits(mask, ignoring=ignoring):
            continue
        total, left = _sum(zones, nodes), _sum(available, nodes)
        score = scorer.score(_used(total, left), total, asked)
        for name, found in masks.items():
            if not mask & lacking[name]:
                found.append((mask, score))
    return {name: _hints(found, policy) for name, found in masks.items()}


def amplified_requests(choice: Choice) -> Mapping[str, int]:
    """The requests as the node counts them."""
    amounts, ratio = choice.request.amounts, choice.room.zones.cpu_ratio
    if not choice.request.cpus or ratio <= 1:
        return amounts
    return {**amounts, CPU: amplified(amounts[CPU], ratio)}


def _sum(amounts: Amounts, nodes: Sequence[int]) -> Mapping[str, int]:
    if len(nodes) == 1:
        return amounts.get(nodes[0], {})
    total: dict[str, int] = {}
    for node in nodes:
        for name, amount in amounts.get(node, {}).items():
            total[name] = total.get(name, 0) + amount
    return total


def _used(total: Mapping[str, int], available: Mapping[str, int]) -> dict[str, int]:
    return {name: max(0, amount - available.get(name, 0)) for name, amount in total.items()}


def _hints(found: list[tuple[int, int]], policy: NUMATopologyPolicy) -> tuple[NUMATopologyHint, ...]:
    """Under Restricted every set will do, as long as it is the same for all resources; otherwise the smallest."""
    smallest = min([mask.bit_count() for mask, _ in found], default=0)
    any_size = policy is NUMATopologyPolicy.RESTRICTED
    return tuple(
        [NUMATopologyHint(mask, any_size or mask.bit_count() == smallest, score=score) for mask, score in found]
    )
