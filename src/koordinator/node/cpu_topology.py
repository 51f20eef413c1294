"""Which CPUs share a core, a cache, a NUMA node and a socket.

Read from sysfs, with the numbers that ``lscpu --extended`` gives: cores and sockets are numbered over the whole machine
in the order in which their first CPU comes, whatever numbers the hardware has. The wire contract has those numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from koordinator.api.cpu_list import parse_cpu_list
from koordinator.node.errors import FileError, MalformedFileError, MissingFileError, OddRowError, Skipped
from koordinator.node.host import Host, exists, list_folder, read_file, read_integer, read_optional_integer, read_text
from koordinator.node.memory import numa_node_number


@dataclass(frozen=True, slots=True, order=True)
class LogicalCPU:
    """The order is that of NUMA node, socket, core, CPU."""

    numa_node: int
    socket: int
    core: int
    cpu: int
    l1l2: str = ""
    """The number of the level 1 data cache."""
    l3: int = 0


@dataclass(frozen=True)
class CPUTopology:
    """The CPUs that are online, in order."""

    cpus: tuple[LogicalCPU, ...]

    @cached_property
    def by_core(self) -> dict[int, list[int]]:
        return self._by("core")

    @cached_property
    def by_socket(self) -> dict[int, list[int]]:
        return self._by("socket")

    @cached_property
    def by_numa_node(self) -> dict[int, list[int]]:
        return self._by("numa_node")

    @cached_property
    def by_l3(self) -> dict[int, list[int]]:
        return self._by("l3")

    def _by(self, field: str) -> dict[int, list[int]]:
        groups = defaultdict(list)
        for cpu in self.cpus:
            groups[getattr(cpu, field)].append(cpu.cpu)
        return dict(groups)


@dataclass(frozen=True, slots=True)
class CPUBasicInfo:
    """The content of the annotation node.koordinator.sh/cpu-basic-info; what the machine does not have stays empty."""

    model: str = "unknown"
    vendor: str = "unknown"
    hyper_threading: bool = False
    turbo: bool = False
    l3_mask: str = ""
    """The mask of the level 3 cache's ways, hexadecimal."""


def read_cpu_topology(host: Host, skipped: Skipped) -> CPUTopology:
    """MalformedFileError if not one CPU is online.

    A CPU of which the kernel tells no core (some virtual machines) is a core by itself; all without a socket share one.
    CPUs that no NUMA node lists belong to the first.
    """
    folder = f"{host.sys}/devices/system/cpu"
    numa_nodes = _numa_nodes(host, skipped)
    first_numa_node = min(numa_nodes.values(), default=0)
    cores = _Numbering()
    sockets = _Numbering()
    caches: defaultdict[str, _Numbering] = defaultdict(_Numbering)
    cpus = []
    for cpu in sorted(_online(folder)):
        path = f"{folder}/cpu{cpu}"
        core_cpus, socket_cpus = (
            _siblings(f"{path}/topology", *names, skipped) for names in (_CORE_FILES, _SOCKET_FILES)
        )
        if (core_cpus is None or socket_cpus is None) and _went_offline(path):
            continue
        core, socket = cores.number(core_cpus or str(cpu)), sockets.number(socket_cpus or "")
        numbers = _cache_numbers(path, caches, skipped)
        cpus.append(
            LogicalCPU(
                numa_node=numa_nodes.get(cpu, first_numa_node),
                socket=socket,
                core=core,
                cpu=cpu,
                l1l2=str(numbers.get("L1d", numbers.get("L1", 0))),
                l3=numbers.get("L3", 0),
            )
        )
    if not cpus:
        raise MalformedFileError(folder, "has no CPU that is online")
    return CPUTopology(tuple(sorted(cpus)))


def read_basic_info(host: Host, topology: CPUTopology | None) -> CPUBasicInfo:
    """Each part that cannot be read stays empty."""
    model, vendor = _names(f"{host.proc}/cpuinfo")
    smt = read_optional_integer(f"{host.sys}/devices/system/cpu/smt/active")
    if smt is None and topology is not None:
        smt = int(any(len(cpus) > 1 for cpus in topology.by_core.values()))
    try:
        mask = read_text(f"{host.sys_fs}/resctrl/info/L3/cbm_mask")
    except FileError:
        mask = ""
    return CPUBasicInfo(
        model=model,
        vendor=vendor,
        hyper_threading=smt == 1,
        turbo=read_optional_integer(f"{host.sys}/devices/system/cpu/intel_pstate/no_turbo") == 0,
        l3_mask=mask,
    )


def cpu_flags(host: Host) -> frozenset[str]:
    """What the first CPU can do, in the words of ``/proc/cpuinfo``; empty where it does not say."""
    for name, value in _cpuinfo(f"{host.proc}/cpuinfo"):
        if name in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


_CORE_FILES: Final = ("core_cpus_list", "thread_siblings_list")
_SOCKET_FILES: Final = ("package_cpus_list", "core_siblings_list")
"""The second of each is the name before Linux 5.3."""


class _Numbering:
    """Numbers things in the order in which they are first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, key: str) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _online(folder: str) -> frozenset[int]:
    path = f"{folder}/online"
    try:
        return parse_cpu_list(read_text(path))
    except ValueError as error:
        raise MalformedFileError(path, str(error)) from None


def _siblings(folder: str, name: str, older_name: str, skipped: Skipped) -> str | None:
    """None where the kernel does not tell."""
    for path in (f"{folder}/{name}", f"{folder}/{older_name}"):
        try:
            return read_text(path) or None
        except MissingFileError:
            continue
        except FileError as error:
            skipped(OddRowError(path, error.problem))
    return None


def _went_offline(path: str) -> bool:
    """Whether the CPU takes no tasks any more: its topology goes with it. The first CPU may have no switch."""
    return not exists(path) or read_optional_integer(f"{path}/online") == 0


def _numa_nodes(host: Host, skipped: Skipped) -> dict[int, int]:
    """The NUMA node of each CPU; a kernel without NUMA has no folder for it, and one node."""
    parent = f"{host.sys}/devices/system/node"
    nodes: dict[int, int] = {}
    try:
        names = list_folder(parent)
    except FileError:
        return nodes
    for name in names:
        number = numa_node_number(name)
        if number is None:
            continue
        path = f"{parent}/{name}/cpulist"
        try:
            nodes.update(dict.fromkeys(parse_cpu_list(read_text(path)), number))
        except (FileError, ValueError) as error:
            skipped(OddRowError(path, error.problem if isinstance(error, FileError) else str(error)))
    return nodes


def _cache_numbers(path: str, numberings: defaultdict[str, _Numbering], skipped: Skipped) -> dict[str, int]:
    """The caches of a CPU by the names that lscpu gives them: L1d, L1i, L2, L3."""
    numbers: dict[str, int] = {}
    try:
        indexes = [name for name in list_folder(f"{path}/cache") if name.startswith("index")]
    except FileError:
        return numbers
    for index in indexes:
        folder = f"{path}/cache/{index}"
        try:
            kind = {"Data": "d", "Instruction": "i"}.get(read_text(f"{folder}/type"), "")
            name = f"L{read_integer(f'{folder}/level')}{kind}"
            number = read_optional_integer(f"{folder}/id")
            # Before Linux 4.11, and on machines whose firmware does not say, caches have no numbers of their own.
            numbers[name] = (
                number if number is not None else numberings[name].number(read_text(f"{folder}/shared_cpu_list"))
            )
        except FileError as error:
            skipped(OddRowError(error.path, error.problem))
    return numbers


def _names(path: str) -> tuple[str, str]:
    model = vendor = ""
    for name, value in _cpuinfo(path):
        if not model and name.lower() == "model name":
            model = value
        elif not vendor and name == "vendor_id":
            vendor = value
        if model and vendor:
            break
    return model or "unknown", vendor or "unknown"


def _cpuinfo(path: str) -> Iterator[tuple[str, str]]:
    try:
        content = read_file(path)
    except FileError:
        return
    for line in content.decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()
