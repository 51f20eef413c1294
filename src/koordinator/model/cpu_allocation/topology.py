"""The CPUs of a node by core, NUMA node and socket, as in the annotation ``node.koordinator.sh/cpu-topology``.

A set of CPUs is a mask, an integer with one bit for each: operations on a hundred CPUs are as quick as on one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class BindPolicy(StrEnum):
    """How the CPUs of a pod are distributed over cores, as in ``scheduling.koordinator.sh/resource-spec``."""

    NONE = ""
    DEFAULT = "Default"
    """The policy of the scheduler plugin's arguments."""
    FULL_PCPUS = "FullPCPUs"
    """On as few cores as possible."""
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    """On as many cores as possible."""
    CONSTRAINED_BURST = "ConstrainedBurst"


@dataclass(frozen=True, slots=True)
class CPU:
    """A logical CPU. Cores of different sockets have different numbers."""

    number: int
    core: int
    numa_node: int
    socket: int


class CPUTopology:
    """The CPUs of a node; may be none."""

    def __init__(self, cpus: Iterable[CPU]) -> None:
        every = list(cpus)
        self.cpus = {cpu.number: cpu for cpu in every}
        """By number; of two with one number, the last."""
        self.all = cpu_mask(self.cpus)
        self.cores = _masks((cpu.core, cpu.number) for cpu in self.cpus.values())
        """The CPUs of each core, as are the following of each NUMA node and socket."""
        self.numa_nodes = _masks((cpu.numa_node, cpu.number) for cpu in self.cpus.values())
        self.sockets = _masks((cpu.socket, cpu.number) for cpu in self.cpus.values())
        self.cpus_per_core = _share(len(self.cpus), len({(cpu.socket, cpu.numa_node, cpu.core) for cpu in every}))
        self.cpus_per_numa_node = _share(len(self.cpus), len({(cpu.socket, cpu.numa_node) for cpu in every}))
        self.cpus_per_socket = _share(len(self.cpus), len({cpu.socket for cpu in every}))

    def __bool__(self) -> bool:
        """Whether it has any CPU, so that some can be bound."""
        return bool(self.cpus)

    def usable(self, free: int, policy: BindPolicy) -> int:
        """Those of ``free`` that may be given to a pod that requires the policy: of cores that are free as a whole, or
        the first free one of each core."""
        if policy is BindPolicy.FULL_PCPUS:
            whole = [core for core in self.cores.values() if core & free == core]
            return sum([core for core in whole if core.bit_count() == self.cpus_per_core])
        if policy is BindPolicy.SPREAD_BY_PCPUS:
            return sum([lowest(core & free) for core in self.cores.values()])
        return free

    def satisfies(self, cpus: int, policy: BindPolicy) -> bool:
        """Whether ``cpus`` are distributed over cores as the policy requires."""
        cores = sum([1 for core in self.cores.values() if core & cpus])
        if policy is BindPolicy.FULL_PCPUS:
            return cores * self.cpus_per_core == cpus.bit_count()
        return policy is not BindPolicy.SPREAD_BY_PCPUS or cores == cpus.bit_count()


def cpu_mask(numbers: Iterable[int]) -> int:
    """The mask of these CPUs."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def cpus_of(mask: int) -> list[int]:
    """The CPUs of a mask, ascending."""
    found = []
    while mask:
        first = mask & -mask
        found.append(first.bit_length() - 1)
        mask ^= first
    return found


def lowest(mask: int) -> int:
    """The mask of the first CPU alone."""
    return mask & -mask


def _masks(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    masks: dict[int, int] = {}
    for part, number in pairs:
        masks[part] = masks.get(part, 0) | 1 << number
    return masks


def _share(cpus: int, parts: int) -> int:
    return cpus // parts if parts else 0
