"""The memory of the machine and of its NUMA nodes, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.cpu_list import parse_cpu_list
from koordinator.node.errors import FileError, MalformedFileError, MissingFileError
from koordinator.node.host import Host, list_folder, read_file, read_optional_integer, read_text

HUGE_PAGE_KIB: Final = (2048, 1024 * 1024)
"""The sizes of huge pages that Kubernetes has resources for, in KiB."""


@dataclass(frozen=True, slots=True)
class MachineMemory:
    total: int
    free: int
    available: int

    @property
    def usage(self) -> int:
        """What could not be given to a new program without swapping: without the page cache."""
        return self.total - self.available

    @property
    def usage_with_page_cache(self) -> int:
        return self.total - self.free


@dataclass(frozen=True, slots=True)
class NUMANodeMemory:
    """The memory of one NUMA node; ``huge_pages`` counts by the size of a page in KiB."""

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
    return MachineMemory(*(_value(path, values, key) for key in (b"MemTotal", b"MemFree", b"MemAvailable")))


def read_numa_memory(host: Host, *, with_huge_pages: bool = False) -> tuple[NUMANodeMemory, ...]:
    """By number; MalformedFileError if the numbers have gaps, because amounts are matched with CPUs by them.

    A NUMA node that is a device rather than memory of the machine (a generic initiator) is left out.
    """
    parent = f"{host.sys}/bus/node/devices"
    devices = _generic_initiators(host)
    nodes = []
    for name in list_folder(parent):
        if not name.startswith("node") or not name[4:].isdecimal() or int(name[4:]) in devices:
            continue
        try:
            nodes.append(_read_numa_node(parent, int(name[4:]), with_huge_pages))
        except FileError:
            # The check of the numbers below says which one is absent.
            continue
    nodes.sort(key=lambda node: node.number)
    highest = nodes[-1].number if nodes else -1
    if not nodes or len(nodes) != highest + 1:
        raise MalformedFileError(parent, f"unexpected number of NUMA node, max ID {highest}, parsed {len(nodes)}")
    return tuple(nodes)


def _read_numa_node(parent: str, number: int, with_huge_pages: bool) -> NUMANodeMemory:
    folder = f"{parent}/node{number}"
    path = f"{folder}/meminfo"
    values = _read_meminfo(path, prefix=b"Node %d " % number)
    total, free, active, inactive, reclaimable = (
        _value(path, values, key)
        for key in (b"MemTotal", b"MemFree", b"Active(file)", b"Inactive(file)", b"SReclaimable")
    )
    return NUMANodeMemory(
        number=number,
        total=total,
        # There is no MemAvailable of a NUMA node: this is what it would be made of.
        usage=max(total - (free + active + inactive + reclaimable), 0),
        huge_pages={kib: _huge_pages(folder, kib) if with_huge_pages else 0 for kib in HUGE_PAGE_KIB},
    )


def _huge_pages(folder: str, kib: int) -> int:
    return read_optional_integer(f"{folder}/hugepages/hugepages-{kib}kB/nr_hugepages") or 0


def _generic_initiators(host: Host) -> frozenset[int]:
    path = f"{host.sys}/devices/system/node/has_generic_initiator"
    try:
        return parse_cpu_list(read_text(path))
    except MissingFileError:
        return frozenset()
    except ValueError as error:
        raise MalformedFileError(path, str(error)) from None


def _read_meminfo(path: str, prefix: bytes) -> dict[bytes, int]:
    """Bytes by name; lines that have no unit (counts of huge pages) are left out."""
    values = {}
    for line in read_file(path).splitlines():
        name, _, rest = line.removeprefix(prefix).partition(b":")
        fields = rest.split()
        if len(fields) == 2 and fields[1] == b"kB" and fields[0].isdigit():
            values[name.strip()] = int(fields[0]) * 1024
    return values


def _value(path: str, values: Mapping[bytes, int], key: bytes) -> int:
    try:
        return values[key]
    except KeyError:
        raise MalformedFileError(path, f"has no {key.decode()} in kB") from None
