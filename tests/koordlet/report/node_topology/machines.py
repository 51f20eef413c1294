"""Machines by their numbers, as the kernel would show them."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.node.cpu_topology import CPUTopology, LogicalCPU
from koordinator.node.memory import NUMANodeMemory

GIB = 1 << 30


def machine(sockets: int, numa_nodes: int, cores: int, threads: int) -> CPUTopology:
    """So many sockets, NUMA nodes in each, cores in each of those, threads in each core.

    The second thread of each core has its number after the first threads of all cores, as on most machines.
    """
    total = sockets * numa_nodes * cores
    cpus = [
        LogicalCPU(core // cores, core // (cores * numa_nodes), core, core + thread * total, str(core), core // cores)
        for core in range(total)
        for thread in range(threads)
    ]
    return CPUTopology(tuple(sorted(cpus)))


def memory(*sizes: int, huge_pages: Sequence[dict[int, int]] = ()) -> tuple[NUMANodeMemory, ...]:
    """NUMA nodes of so many GiB."""
    return tuple(
        NUMANodeMemory(number, size * GIB, 0, huge_pages[number] if huge_pages else {2048: 0, 1048576: 0})
        for number, size in enumerate(sizes)
    )
