"""CPU topologies of machines of any shape."""

from __future__ import annotations

from koordinator.model.cpu_allocation.topology import CPU, CPUTopology


def machine(
    sockets: int = 1, numa_nodes: int = 1, cores: int = 4, threads: int = 2, *, interleaved: bool = False
) -> CPUTopology:
    """So many NUMA nodes a socket, cores a NUMA node, and threads a core. ``interleaved``: the second threads of all
    cores come after the first ones, otherwise those of a core are neighbours."""
    every = sockets * numa_nodes * cores
    cpus = []
    for core in range(every):
        numa_node = core // cores
        for thread in range(threads):
            number = core + thread * every if interleaved else core * threads + thread
            cpus.append(CPU(number, core, numa_node, numa_node // numa_nodes))
    return CPUTopology(cpus)
