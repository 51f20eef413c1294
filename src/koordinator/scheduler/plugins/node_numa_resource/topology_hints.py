"""The sets of NUMA nodes that suffice for a pod, resource by resource. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from koordinator.api.resource_names import CPU
from koordinator.model.numa_topology.hints import (
    Hints,
    NUMATopologyHint,
    NUMATopologyPolicy,
    mask_of,
    masks_of_size,
    numa_nodes_of,
    sizes_to_try,
)
from koordinator.scheduler.plugins.node_numa_resource.allocation import Amounts, amplified
from koordinator.scheduler.plugins.node_numa_resource.reserved import Choice
from koordinator.scheduler.plugins.node_numa_resource.scoring import NUMAScorer

FEW: Final = 4
"""So many NUMA nodes have 15 sets; eight have 255."""


def hints_of(
    choice: Choice, policy: NUMATopologyPolicy, scorer: NUMAScorer, *, ignoring: bool, narrow: bool = False
) -> Hints:
    """The hints of a pod on a node that has zones. ``ignoring`` as in Choice.from_any. ``narrow``: the smallest sets
    that suffice for all resources are enough, since no other plugin has hints and no pods have to be kept apart."""
    found = _Found(choice, scorer, ignoring=ignoring)
    count = len(found.numa_nodes)
    is_single = policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    # If no single NUMA node suffices, the reasons require larger sets; the set of all of them is enough for that.
    for size in (1, count) if narrow and is_single and count > 1 else sizes_to_try(count):
        for mask in masks_of_size(found.numa_nodes, size):
            found.add(mask)
        if narrow and found.is_settled(size):
            break
    return {name: _hints(masks, policy) for name, masks in found.masks.items()}


class _Found:
    """The sets of NUMA nodes that suffice, with their scores, by resource."""

    def __init__(self, choice: Choice, scorer: NUMAScorer, *, ignoring: bool) -> None:
        self._choice = choice
        self._scorer = scorer
        self._ignoring = ignoring
        self._zones = zones = choice.capacity.zones.amounts
        self._available = available = choice.unreserved.available
        self._requested = amplified_requests(choice)
        self.numa_nodes = choice.capacity.zones.numa_nodes
        names = [name for name in choice.request.amounts if any(name in zone for zone in zones.values())]
        self.masks: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
        self._lacking = {
            name: mask_of(node for node in zones if not available.get(node, {}).get(name)) for name in names
        }
        """By resource the NUMA nodes that have nothing of it."""

    def add(self, mask: int) -> None:
        """Add the set if it suffices."""
        if not self._choice.fits(mask, ignoring=self._ignoring):
            return
        nodes = numa_nodes_of(mask)
        total, left = _sum(self._zones, nodes), _sum(self._available, nodes)
        score = self._scorer.score(_used(total, left), total, self._requested)
        for name, masks in self.masks.items():
            if not mask & self._lacking[name]:
                masks.append((mask, score))

    def is_settled(self, size: int) -> bool:
        """Whether some set of this size suffices for all resources."""
        sets = [{mask for mask, _ in masks if mask.bit_count() == size} for masks in self.masks.values()]
        return bool(sets) and bool(set.intersection(*sets))


def amplified_requests(choice: Choice) -> Mapping[str, int]:
    """The requests as the node counts them."""
    amounts, ratio = choice.request.amounts, choice.capacity.zones.cpu_ratio
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
    """Under Restricted every set is preferred, as long as it is the same for all resources; otherwise the smallest."""
    smallest = min([mask.bit_count() for mask, _ in found], default=0)
    any_size = policy is NUMATopologyPolicy.RESTRICTED
    return tuple(
        [NUMATopologyHint(mask, any_size or mask.bit_count() == smallest, score=score) for mask, score in found]
    )
