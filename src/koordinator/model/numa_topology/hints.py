"""Topology hints: the sets of NUMA nodes that could provide what a pod requests of one resource.

The terms are those of the kubelet's topology manager. A set of NUMA nodes is a mask, an integer with one bit for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Final


class NUMATopologyPolicy(StrEnum):
    """How strictly a pod is aligned, as node labels and pod annotations have it."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class NUMANodeState(StrEnum):
    """Which pods the CPUs of a NUMA node are bound to."""

    IDLE = "idle"
    SINGLE = "single"
    """To pods that have none elsewhere."""
    SHARED = "shared"
    """To a pod that has some on other NUMA nodes, too."""


@dataclass(frozen=True, slots=True)
class NUMATopologyHint:
    """One set of NUMA nodes that would suffice."""

    mask: int | None
    """None: any NUMA nodes suffice."""
    preferred: bool = False
    """No smaller set would suffice."""
    unsatisfied: bool = False
    """The set does not suffice: a placeholder for what no set can provide."""
    score: int = 0
    """Of sets of equal size, the one with the higher sum of scores is taken."""


Hints = Mapping[str, Sequence[NUMATopologyHint] | None]
"""By resource. None: the resource does not belong to NUMA nodes. An empty sequence: no set of NUMA nodes would suffice.
Otherwise each mask once, small ones first, those of equal size by their NUMA nodes (see ``masks_of``)."""


def mask_of(numa_nodes: Iterable[int]) -> int:
    """The mask of these NUMA nodes."""
    mask = 0
    for numa_node in numa_nodes:
        mask |= 1 << numa_node
    return mask


def numa_nodes_of(mask: int) -> tuple[int, ...]:
    """The NUMA nodes of a mask, ascending."""
    return tuple([bit for bit in range(mask.bit_length()) if mask >> bit & 1])


MANY: Final = 8
"""Up to so many NUMA nodes, as in the kubelet, all sets are tried: each further one doubles them."""


def sizes_to_try(count: int) -> Sequence[int]:
    """How many of ``count`` NUMA nodes the sets have that are tried: any number, or on a machine with very many each
    single one and all together."""
    return range(1, count + 1) if count <= MANY else (1, count)


def masks_of(numa_nodes: Sequence[int]) -> Iterator[int]:
    """Every mask of these that is tried, in the order of hints."""
    for size in sizes_to_try(len(numa_nodes)):
        yield from masks_of_size(numa_nodes, size)


def masks_of_size(numa_nodes: Sequence[int], size: int) -> Iterator[int]:
    """Those of so many NUMA nodes."""
    for chosen in combinations(numa_nodes, size):
        yield mask_of(chosen)


def format_mask(mask: int) -> str:
    """The mask in binary, with as many digits as the original prints: two, or the smallest even number that is enough
    where a power of four counts as one digit less, so that {0, 2} is ``0101`` and {2} is ``100``."""
    return format(mask, f"0{_width(mask)}b")


def _width(mask: int) -> int:
    for shift in range(62, 0, -2):
        if mask > 1 << shift:
            return shift + 2
    return 2


def is_exclusive(mask: int, states: Mapping[int, NUMANodeState]) -> bool:
    """Whether an exclusive pod may use the mask: several NUMA nodes none of which is used by pods on it alone, or a
    single one that is not shared."""
    states_of_mask = [states.get(numa_node, NUMANodeState.IDLE) for numa_node in numa_nodes_of(mask)]
    if len(states_of_mask) > 1:
        return NUMANodeState.SINGLE not in states_of_mask
    return NUMANodeState.SHARED not in states_of_mask
