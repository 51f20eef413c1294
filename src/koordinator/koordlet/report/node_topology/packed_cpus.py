"""Which CPUs the kubelet's static CPU manager allocates for a number of CPUs: the same rule; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Final

from koordinator.node.cpu_topology import CPUTopology, LogicalCPU

_PartOf = Callable[[LogicalCPU], int]
_CORE: Final[_PartOf] = attrgetter("core")
_LEVELS: Final[Sequence[_PartOf]] = (attrgetter("socket"), attrgetter("numa_node"), _CORE)


def take_packed(topology: CPUTopology, count: int) -> frozenset[int]:
    """So many of all CPUs: whole sockets, then whole NUMA nodes, then whole cores, then single CPUs.

    At each level those come first that have the fewest free CPUs, then those of the lowest number. With 8 CPUs, of
    which each two share a core (0 and 4, 1 and 5 …), 2 are 0 and 4. ValueError if there are not so many.
    """
    if count > len(topology.cpus):
        raise ValueError(f"{count} CPUs are wanted, and there are {len(topology.cpus)}")
    free = set(topology.cpus)
    needed = max(count, 0)
    for part_of in _LEVELS:
        whole = Counter(map(part_of, topology.cpus))
        for part in _in_order(free, part_of):
            cpus = [cpu for cpu in free if part_of(cpu) == part]
            if len(cpus) == whole[part] <= needed:
                free.difference_update(cpus)
                needed -= len(cpus)
    free.difference_update(_single(free)[:needed])
    return frozenset(cpu.cpu for cpu in topology.cpus if cpu not in free)


def _in_order(free: Collection[LogicalCPU], part_of: _PartOf) -> list[int]:
    """Parts that have free CPUs; NUMA nodes in the order of their sockets, cores in that of their NUMA nodes."""
    sizes = [Counter(map(level, free)) for level in _LEVELS]

    def place(cpu: LogicalCPU) -> tuple[int, ...]:
        key: tuple[int, ...] = ()
        for level, size in zip(_LEVELS, sizes, strict=True):
            key += (size[level(cpu)], level(cpu))
            if level is part_of:
                break
        return key

    return list(dict.fromkeys(part_of(cpu) for cpu in sorted(free, key=place)))


def _single(free: Collection[LogicalCPU]) -> list[LogicalCPU]:
    places = {core: place for place, core in enumerate(_in_order(free, _CORE))}
    return sorted(free, key=lambda cpu: (places[cpu.core], cpu.cpu))
