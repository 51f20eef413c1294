"""The CPU accumulator: selects which of the free CPUs of a node a pod gets.

The rules are the original's (cpu_accumulator.go, takeCPUs): from one NUMA node if one has enough, else from one socket,
else from several; whole cores or one CPU of each core, by the bind policy. NUMA nodes and sockets are ordered by what
is free there. CPUs that the exclusive policy keeps apart are taken only if there are no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordinator.model.cpu_allocation.topology import CPU, BindPolicy, CPUTopology, cpu_mask

NOT_ENOUGH: Final = "not enough cpus available to satisfy request"


class ExclusivePolicy(StrEnum):
    """The units that pods with the same policy avoid sharing."""

    NONE = ""
    CORE = "PCPULevel"
    NUMA_NODE = "NUMANodeLevel"


class NotEnoughCPUsError(Exception):
    """There are too few CPUs; the text is the reason shown to the user."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """The pod's preferences among CPUs."""

    bind: BindPolicy = BindPolicy.NONE
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    others: int = 0
    """The CPUs of other pods with the same exclusive policy."""
    packs: bool = False
    """Whether parts with the least free CPUs come first (MostAllocated), otherwise those with the most."""


def take_preferred(topology: CPUTopology, free: int, preferred: int, count: int, preferences: Preferences) -> int:
    """Take ``count`` CPUs of ``free``, first those that are also ``preferred``, then others. Raises
    NotEnoughCPUsError."""
    first = free & preferred
    taken = take(topology, first, min(count, first.bit_count()), preferences)
    rest = count - taken.bit_count()
    return taken | take(topology, free & ~first, rest, preferences) if rest > 0 else taken


def take(topology: CPUTopology, free: int, count: int, preferences: Preferences) -> int:
    """Take ``count`` CPUs of ``free``. Raises NotEnoughCPUsError."""
    accumulator = _Accumulator(topology, free, count, preferences)
    if count > len(accumulator.free):
        raise NotEnoughCPUsError(NOT_ENOUGH)
    if count > 0:
        accumulator.run()
    return cpu_mask(accumulator.taken)


Parts = list[list[int]]
"""The usable CPUs of each of some NUMA nodes or sockets, in the order in which they are taken."""


class _Accumulator:
    def __init__(self, topology: CPUTopology, free: int, count: int, preferences: Preferences) -> None:
        self._topology = topology
        self._preferences = preferences
        self._sign = 1 if preferences.packs else -1
        self.free = {number: cpu for number, cpu in topology.cpus.items() if free >> number & 1}
        self.needed = count
        self.taken: list[int] = []
        others = [cpu for number, cpu in topology.cpus.items() if preferences.others >> number & 1]
        self._cores = {cpu.core for cpu in others} if preferences.exclusive is ExclusivePolicy.CORE else set()
        self._numa_nodes = (
            {cpu.numa_node for cpu in others} if preferences.exclusive is ExclusivePolicy.NUMA_NODE else set()
        )

    def run(self) -> None:
        """Take CPUs until there are enough."""
        packs_cores = self._preferences.bind is BindPolicy.FULL_PCPUS
        if (packs_cores or self._topology.cpus_per_core == 1) and self._take_whole_cores():
            return
        if not packs_cores and self._take_spread():
            return
        for apart in (True, False):
            for number in self._spread(self._by_affinity(apart)):
                if self.needed:
                    self._take([number])
        if self.needed:
            raise NotEnoughCPUsError("failed to allocate cpus")

    # Taking CPUs.

    def _take(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            cpu = self.free.pop(number)
            if self._preferences.exclusive is ExclusivePolicy.CORE:
                self._cores.add(cpu.core)
            elif self._preferences.exclusive is ExclusivePolicy.NUMA_NODE:
                self._numa_nodes.add(cpu.numa_node)
        self.taken += numbers
        self.needed -= len(numbers)

    def _take_from_one(self, parts: Parts, arranged: Callable[[list[int]], list[int]] = list) -> bool:
        """Take all that is needed from the first part that has enough; returns whether one has."""
        for part in parts:
            if len(part) >= self.needed:
                self._take(arranged(part)[: self.needed])
                return True
        return False

    def _take_whole_cores(self) -> bool:
        if self.needed <= self._topology.cpus_per_numa_node and any(
            self._take_from_one(self._cores_of_numa_nodes(apart)) for apart in (True, False)
        ):
            return True
        of_sockets = self._cores_of_sockets()
        if self.needed <= self._topology.cpus_per_socket and self._take_from_one(of_sockets):
            return True
        left: Parts = []
        for part in sorted(of_sockets, key=len, reverse=True):
            if len(part) > self.needed:
                left.append(part)
            else:
                self._take(part)
        self._take_cores_of(sorted(left, key=len))
        return not self.needed

    def _take_cores_of(self, parts: Parts) -> None:
        per_core = self._topology.cpus_per_core
        for part in parts:
            for start in range(0, len(part), per_core):
                if self.needed < per_core:
                    return
                self._take(part[start : start + per_core])

    def _take_spread(self) -> bool:
        if self.needed <= self._topology.cpus_per_numa_node and any(
            self._take_from_one(self._cpus_of_numa_nodes(apart), self._spread) for apart in (True, False)
        ):
            return True
        return self.needed <= self._topology.cpus_per_socket and any(
            self._take_from_one(self._cpus_of_sockets(apart), self._spread) for apart in (True, False)
        )

    # Available CPUs.

    def _cores_of_numa_nodes(self, apart: bool) -> Parts:
        free = [cpu for cpu in self.free.values() if not (apart and cpu.numa_node in self._numa_nodes)]
        of_sockets = _counts(cpu.socket for cpu in free)
        whole = self._whole_cores(free)
        return self._ordered(
            _grouped(whole, lambda cpu: cpu.numa_node), lambda part: (len(part), of_sockets[part[0].socket])
        )

    def _cores_of_sockets(self) -> Parts:
        whole = self._whole_cores(self.free.values())
        return self._ordered(_grouped(whole, lambda cpu: cpu.socket), lambda part: (len(part),))

    def _whole_cores(self, free: Iterable[CPU]) -> list[CPU]:
        """The CPUs of those cores that are free as a whole, core by core."""
        cores = _grouped(free, _core)
        whole = [cores[core] for core in sorted(cores) if len(cores[core]) == self._topology.cpus_per_core]
        return [cpu for core in whole for cpu in sorted(core, key=_number)]

    def _cpus_of_numa_nodes(self, apart: bool) -> Parts:
        free = [cpu for cpu in self._apart(apart) if not (apart and cpu.core in self._cores)]
        of_numa_nodes, of_sockets = _counts(cpu.numa_node for cpu in free), _counts(cpu.socket for cpu in free)
        return self._ordered(
            self._one_by_core(_grouped(sorted(free, key=_number), lambda cpu: cpu.numa_node), apart),
            lambda part: (of_numa_nodes[part[0].numa_node], of_sockets[part[0].socket]),
        )

    def _cpus_of_sockets(self, apart: bool) -> Parts:
        free = [cpu for cpu in self.free.values() if not (apart and cpu.core in self._cores)]
        groups = self._one_by_core(_grouped(sorted(free, key=_number), lambda cpu: cpu.socket), apart)
        return self._ordered(groups, lambda part: (len(part),))

    def _apart(self, apart: bool) -> list[CPU]:
        return [cpu for cpu in self.free.values() if not (apart and cpu.numa_node in self._numa_nodes)]

    @staticmethod
    def _one_by_core(groups: dict[int, list[CPU]], apart: bool) -> dict[int, list[CPU]]:
        """``apart``: only the first CPU of each core."""
        if not apart:
            return groups
        return {part: [cores[0] for cores in _grouped(cpus, _core).values()] for part, cpus in groups.items()}

    def _ordered(self, groups: dict[int, list[CPU]], amounts: Callable[[list[CPU]], tuple[int, ...]]) -> Parts:
        """NUMA nodes or sockets in the order of what is free there, then by number."""

        def key(part: int) -> tuple[int, ...]:
            return (*[self._sign * amount for amount in amounts(groups[part])], part)

        return [[cpu.number for cpu in groups[part]] for part in sorted(groups, key=key)]

    def _by_affinity(self, apart: bool) -> list[int]:
        """All free CPUs core by core: first those near to what is taken already, then in the order of what is free on
        socket and NUMA node, then those of cores in use."""
        free = [cpu for cpu in self._apart(apart) if not (apart and cpu.core in self._cores)]
        of_numa_nodes, of_sockets = _counts(cpu.numa_node for cpu in free), _counts(cpu.socket for cpu in free)
        near = _counts(self._topology.cpus[number].socket for number in self.taken)

        def key(core: list[CPU]) -> tuple[int, ...]:
            first = core[0]
            return (
                -near.get(first.socket, 0),
                self._sign * of_sockets[first.socket],
                self._sign * of_numa_nodes[first.numa_node],
                len(core),
                first.socket,
                first.core,
            )

        cores = sorted(_grouped(free, _core).values(), key=key)
        return [cpu.number for core in cores for cpu in sorted(core, key=_number)]

    def _spread(self, numbers: Sequence[int]) -> list[int]:
        """The first CPU of each core in the order of ``numbers``, then the second of each, and so on."""
        if len(numbers) <= self._topology.cpus_per_core:
            return list(numbers)
        seen: dict[int, int] = {}
        turns: list[tuple[int, int]] = []
        for number in numbers:
            core = self._topology.cpus[number].core
            turns.append((seen.get(core, 0), number))
            seen[core] = seen.get(core, 0) + 1
        return [number for _, number in sorted(turns, key=lambda each: each[0])]


def _number(cpu: CPU) -> int:
    return cpu.number


def _core(cpu: CPU) -> int:
    return cpu.core


def _counts(parts: Iterable[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for part in parts:
        counts[part] = counts.get(part, 0) + 1
    return counts


def _grouped(cpus: Iterable[CPU], part_of: Callable[[CPU], int]) -> dict[int, list[CPU]]:
    groups: dict[int, list[CPU]] = {}
    for cpu in cpus:
        groups.setdefault(part_of(cpu), []).append(cpu)
    return groups
