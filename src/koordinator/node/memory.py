"""The memory of the machine and of its NUMA nodes, in bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.cpu_list import HIGHEST_NUMA_NODE, parse_cpu_list
from koordinator.node.errors import FileError, MalformedFileError, MissingFileError, OddRowError, Skipped
from koordinator.node.host import Host, list_folder, parse_count, read_file, read_optional_integer, read_text

_MEMINFO_LINE: Final = re.compile(rb"^(Node \d+ |)(\S+):[ \t]*(\d{1,20})(?:[ \t]+(kB))?[ \t]*$", re.MULTILINE)
"""``MemTotal:  16384 kB``; in the file of a NUMA node ``Node 0 MemTotal:  16384 kB``."""

_RECLAIMABLE: Final = (b"Active(file)", b"Inactive(file)", b"SReclaimable")


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """``huge_pages`` is the pool of huge pages of all sizes, used or not. It is neither free nor available, and no
    program gets it that does not ask for huge pages: it is no usage of memory."""

    total: int
    free: int
    available: int
    huge_pages: int = 0
    reclaimable: int | None = None
    """Page cache and slabs that the kernel may take back; None where it does not say."""

    @property
    def usage(self) -> int:
        """What could not be given to a new program without swapping: without the page cache."""
        return max(self.total - self.huge_pages - self.available, 0)

    @property
    def usage_with_page_cache(self) -> int:
        return max(self.total - self.huge_pages - self.free, 0)

    @property
    def usage_of_only_numa_node(self) -> int | None:
        """What the one NUMA node of the machine uses, by the measure of NUMA nodes (``NUMANodeMemory``)."""
        return None if self.reclaimable is None else max(self.usage_with_page_cache - self.reclaimable, 0)


@dataclass(frozen=True, slots=True)
class NUMANodeMemory:
    """The memory of one NUMA node; ``huge_pages`` counts those of its pools by the size of a page in KiB, where they
    were asked for. They are no usage."""

    number: int
    total: int
    usage: int
    huge_pages: Mapping[int, int]

    @property
    def huge_page_bytes(self) -> int:
        return sum(kib * 1024 * count for kib, count in self.huge_pages.items())


def read_machine_memory(host: Host) -> MachineMemory:
    path = f"{host.proc}/meminfo"
    values = _read_meminfo(path, prefix=b"")
    total, free, available = (_value(path, values, key) for key in (b"MemTotal", b"MemFree", b"MemAvailable"))
    parts = [values.get(key) for key in _RECLAIMABLE]
    known = [part for part in parts if part is not None]
    reclaimable = sum(known) if len(known) == len(parts) else None
    return MachineMemory(total, free, available, _huge_page_pool(values), reclaimable)


def read_numa_memory(host: Host, skipped: Skipped, *, with_huge_pages: bool = False) -> tuple[NUMANodeMemory, ...]:
    """In the order of their numbers, which have gaps on many machines; MalformedFileError if not one can be read.

    A NUMA node that is a device rather than memory of the machine (a generic initiator) is left out.
    """
    parent = f"{host.sys}/bus/node/devices"
    devices = _generic_initiators(host, skipped)
    nodes = []
    for name in list_folder(parent):
        number = numa_node_number(name)
        if number is None or number in devices:
            continue
        try:
            nodes.append(_read_numa_node(parent, number, with_huge_pages))
        except FileError as error:
            skipped(OddRowError(error.path, error.problem))
    if not nodes:
        raise MalformedFileError(parent, "has no NUMA node of which the memory is known")
    return tuple(sorted(nodes, key=lambda node: node.number))


def numa_node_number(folder: str) -> int | None:
    """Of a folder ``node8`` among others."""
    number = parse_count(folder[4:].encode()) if folder.startswith("node") else None
    return number if number is not None and number <= HIGHEST_NUMA_NODE else None


def _read_numa_node(parent: str, number: int, with_huge_pages: bool) -> NUMANodeMemory:
    folder = f"{parent}/node{number}"
    path = f"{folder}/meminfo"
    huge_pages = _huge_pages(folder) if with_huge_pages else {}
    pools = sum(kib * 1024 * count for kib, count in huge_pages.items())
    values = _read_meminfo(path, prefix=b"Node %d " % number)
    total, free, *reclaimable = (_value(path, values, key) for key in (b"MemTotal", b"MemFree", *_RECLAIMABLE))
    return NUMANodeMemory(
        number=number,
        total=total,
        # There is no MemAvailable of a NUMA node: this is what it would be made of.
        usage=max(total - pools - free - sum(reclaimable), 0),
        huge_pages=huge_pages,
    )


def _huge_pages(folder: str) -> dict[int, int]:
    """Pages by their size in KiB, of the sizes that the kernel has."""
    counts = {}
    try:
        names = list_folder(f"{folder}/hugepages")
    except MissingFileError:
        # A kernel without CONFIG_HUGETLBFS, or a node without memory.
        return {}
    for name in names:
        size = parse_count(name.removeprefix("hugepages-").removesuffix("kB").encode())
        count = read_optional_integer(f"{folder}/hugepages/{name}/nr_hugepages")
        if size is not None and count is not None and count >= 0:
            counts[size] = count
    return counts


def _huge_page_pool(values: Mapping[bytes, int]) -> int:
    """Bytes; before Linux 4.16 the kernel tells the pages of the default size only."""
    pool = values.get(b"Hugetlb")
    return values.get(b"HugePages_Total", 0) * values.get(b"Hugepagesize", 0) if pool is None else pool


def _generic_initiators(host: Host, skipped: Skipped) -> frozenset[int]:
    path = f"{host.sys}/devices/system/node/has_generic_initiator"
    try:
        return parse_cpu_list(read_text(path))
    except MissingFileError:
        pass
    except FileError as error:
        skipped(OddRowError(path, error.problem))
    except ValueError as error:
        skipped(OddRowError(path, str(error)))
    return frozenset()


def _read_meminfo(path: str, prefix: bytes) -> dict[bytes, int]:
    """Bytes by name; counts of huge pages have no unit. Lines of another form are left out: of what the kernel tells,
    little is read, and that is missed where it is absent."""
    values = {}
    for begin, name, amount, unit in _MEMINFO_LINE.findall(read_file(path)):
        if begin == prefix:
            if unit:
                values[name] = int(amount) * 1024
            elif name == b"HugePages_Total":
                values[name] = int(amount)
    return values


def _value(path: str, values: Mapping[bytes, int], key: bytes) -> int:
    try:
        return values[key]
    except KeyError:
        raise MalformedFileError(path, f"has no {key.decode()} in kB") from None
