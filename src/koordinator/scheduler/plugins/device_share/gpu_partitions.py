"""How the GPUs of a node belong together: partitions, whose GPUs are linked with each other and may be allocated
together, and the topology as a tree of the node, its NUMA nodes and their PCIe switches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api.device import DeviceInfo
from koordinator.api.device_share import GPUPartition

Groups = Sequence[Sequence["Partition"]]
"""Partitions of the same size by their scores, the highest first; in the order of the table within a group."""
PartitionTable = Mapping[int, Groups]
"""Number of GPUs -> partitions of so many."""

_SPARED: Final = ((8, 10_000), (4, 100), (2, 1))
"""The value of leaving a partition of so many GPUs untouched."""


@dataclass(frozen=True, slots=True)
class Partition:
    """GPUs by their minor numbers."""

    minors: tuple[int, ...]
    score: int
    bandwidth: int | None = None
    """In units of 10**-9; None if unknown."""


def partition_table(found: Mapping[int, Iterable[GPUPartition]]) -> PartitionTable:
    """The table in a Device's annotation."""
    table: dict[int, Groups] = {}
    for count, partitions in found.items():
        groups: dict[int, list[Partition]] = {}
        for each in partitions:
            bandwidth = each.ring_bus_bandwidth.nanos if each.ring_bus_bandwidth is not None else None
            partition = Partition(tuple(each.minors), each.allocation_score, bandwidth)
            groups.setdefault(each.allocation_score, []).append(partition)
        table[count] = [groups[score] for score in sorted(groups, reverse=True)]
    return table


def _alike(*groups: tuple[int, ...]) -> Groups:
    return ([Partition(minors, 1) for minors in groups],)


HOPPER: Final[PartitionTable] = {
    1: _alike(*[(minor,) for minor in range(8)]),
    2: _alike((0, 1), (2, 3), (4, 5), (6, 7)),
    4: _alike((0, 1, 2, 3), (4, 5, 6, 7)),
    8: _alike((0, 1, 2, 3, 4, 5, 6, 7)),
}
"""Eight GPUs of NVIDIA's Hopper models on NVLink."""


def built_in_table(vendor: str, model: str) -> PartitionTable | None:
    """The table of a model for which the Device need not have one; without a vendor, NVIDIA is assumed."""
    return HOPPER if vendor in ("", "nvidia") and model in ("H100", "H800", "H20") else None


def fitting_partitions(
    groups: Groups, candidates: Collection[int], used: Collection[int], bandwidth: int | None, *, best_only: bool
) -> list[Partition]:
    """The partitions of the first group with any that consist of unused candidates and have the bandwidth.
    ``best_only``: only the first group counts."""
    for group in groups[:1] if best_only else groups:
        found = [each for each in group if _fits(each, candidates, used, bandwidth)]
        if found:
            return found
    return []


def _fits(partition: Partition, candidates: Collection[int], used: Collection[int], bandwidth: int | None) -> bool:
    if bandwidth is not None and (partition.bandwidth is None or partition.bandwidth < bandwidth):
        return False
    return all(minor in candidates and minor not in used for minor in partition.minors)


def best_packed(fitting: Sequence[Partition], table: PartitionTable, used: Collection[int], count: int) -> Partition:
    """The partition that leaves most of the larger partitions untouched; the first of equal ones."""
    if len(fitting) == 1:
        return fitting[0]
    return max(fitting, key=lambda each: _left_untouched(table, {*used, *each.minors}, count))


def _left_untouched(table: PartitionTable, used: Collection[int], count: int) -> int:
    return sum(
        weight * each.score
        for size, weight in _SPARED
        if size >= count and table.get(size)
        for each in table[size][0]
        if not any(minor in used for minor in each.minors)
    )


@dataclass(frozen=True, slots=True)
class GPUScope:
    """A part of the machine."""

    level: int
    """1 for the node, 2 for a NUMA node, 3 for a PCIe switch."""
    minors: tuple[int, ...]
    """Of the GPUs in it, ascending."""
    parts: tuple[GPUScope, ...] = ()
    """By their ids."""


def gpu_scopes(gpus: Sequence[DeviceInfo]) -> GPUScope | None:
    """The tree of these GPUs; None if there are none, or if the position of any is unknown."""
    switches: dict[int, dict[str, list[int]]] = {}
    for gpu in gpus:
        if gpu.topology is None or gpu.minor is None:
            return None
        switches.setdefault(gpu.topology.node_id, {}).setdefault(gpu.topology.pcie_id, []).append(gpu.minor)
    if not switches:
        return None
    parts = tuple(
        GPUScope(
            2,
            _ascending(minor for minors in by_switch.values() for minor in minors),
            tuple(GPUScope(3, _ascending(minors)) for _, minors in sorted(by_switch.items())),
        )
        for _, by_switch in sorted(switches.items())
    )
    return GPUScope(1, _ascending(minor for part in parts for minor in part.minors), parts)


def _ascending(minors: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(minors)))
