"""Which CPUs the kubelet's static CPU manager allocates for a number of CPUs: the same rule; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from koordinator.node.cpu_topology import CPUTopology, LogicalCPU


def take_packed(topology: CPUTopology, count: int) -> frozenset[int]:
    """So many of all CPUs: whole sockets, then whole NUMA nodes, then whole cores, then single CPUs.

    At each level those come first that have the fewest free CPUs, then those of the lowest number. With 8 CPUs, of
    which each two share a core (0 and 4, 1 and 5 …), 2 are 0 and 4. ValueError if there are not so many.
    """
    if count > len(topology.cpus):
        raise ValueError(f"{count} CPUs are wanted, and there are {len(topology.cpus)}")
    free = set(topology.cpus)
    needed = max(count, 0)
    for part_of in (_socket, _numa_node, _core):
        whole = _sizes(topology.cpus, part_of)
        for part in _in_order(free, part_of):
            cpus = [cpu for cpu in free if part_of(cpu) == part]
            if len(cpus) == whole[part] <= needed:
                free.difference_update(cpus)
                needed -= len(cpus)
    free.difference_update(_single(free)[:needed])
    return frozenset(cpu.cpu for cpu in topology.cpus if cpu not in free)


_PartOf = Callable[[LogicalCPU], int]


def _socket(cpu: LogicalCPU) -> int:
    return cpu.socket


def _numa_node(cpu: LogicalCPU) -> int:
    return cpu.numa_node


def _core(cpu: LogicalCPU) -> int:
    return cpu.core


def _sizes(cpus: Iterable[LogicalCPU], part_of: _PartOf) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for cpu in cpus:
        sizes[part_of(cpu)] = sizes.get(part_of(cpu), 0) + 1
    return sizes


def _in_order(free: Collection[LogicalCPU], part_of: _PartOf) -> list[int]:
    """Parts that have free CPUs; NUMA nodes in the order of their sockets, cores in that of their NUMA nodes."""
    sizes = [_sizes(free, level) for level in (_socket, _numa_node, _core)]

    def place(cpu: LogicalCPU) -> tuple[int, ...]:
        key: tuple[int, ...] = ()
        for level, size in zip((_socket, _numa_node, _core), sizes, strict=True):
            key += (size[level(cpu)], level(cpu))
            if level is part_of:
                break
        return key

    return list(dict.fromkeys(part_of(cpu) for cpu in sorted(free, key=place)))


def _single(free: Collection[LogicalCPU]) -> list[LogicalCPU]:
    places = {core: place for place, core in enumerate(_in_order(free, _core))}
    return sorted(free, key=lambda cpu: (places[cpu.core], cpu.cpu))
