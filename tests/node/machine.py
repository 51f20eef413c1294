"""A machine below a temporary folder: files as a kernel would show them."""

from __future__ import annotations

import os
from pathlib import Path

from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.errors import OddRowError
from koordinator.node.host import Host


def none_odd(row: OddRowError) -> None:
    """For readers of files in which no row is odd."""
    raise AssertionError(str(row))


class FakeMachine:
    """Write files with ``write``; ``host`` reads them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host.below(root)

    def write(self, path: str, content: str) -> None:
        """``path`` as on a real machine: ``/proc/stat``."""
        file = f"{self.root}/{path.lstrip('/')}"
        # Tests write tens of thousands of files, most of them again and again.
        try:
            stream = open(file, "w")  # noqa: SIM115
        except FileNotFoundError:
            os.makedirs(os.path.dirname(file), exist_ok=True)
            stream = open(file, "w")  # noqa: SIM115
        with stream:
            stream.write(content)

    def write_numa_memory(self, node: int, kib: int) -> None:
        """Of one NUMA node, all of it free."""
        amounts = {"MemTotal": kib, "MemFree": kib, "Active(file)": 0, "Inactive(file)": 0, "SReclaimable": 0}
        lines = [f"Node {node} {name}: {amount} kB\n" for name, amount in amounts.items()]
        self.write(f"/sys/bus/node/devices/node{node}/meminfo", "".join(lines))

    def layout(self, version: CgroupVersion, driver: CgroupDriver = CgroupDriver.SYSTEMD) -> CgroupLayout:
        return CgroupLayout(self.host.cgroup, version, driver)

    def write_cpus(self, cpus: list[tuple[int, int, int]], *, l3_of: dict[int, int] | None = None) -> None:
        """CPUs as (socket, core of the hardware, NUMA node) by number, as sysfs shows them."""
        folder = "/sys/devices/system/cpu"
        self.write(f"{folder}/online", f"0-{len(cpus) - 1}\n")
        nodes: dict[int, list[int]] = {}
        for cpu, (socket, core, node) in enumerate(cpus):
            topology = f"{folder}/cpu{cpu}/topology"
            mates = [other for other, (s, c, _) in enumerate(cpus) if (s, c) == (socket, core)]
            package = [other for other, (s, _, _) in enumerate(cpus) if s == socket]
            for name, members in (
                ("core_cpus", mates),
                ("thread_siblings", mates),
                ("package_cpus", package),
                ("core_siblings", package),
            ):
                self.write(f"{topology}/{name}_list", ",".join(map(str, members)) + "\n")
                self.write(f"{topology}/{name}", _mask(members) + "\n")
            self.write(f"{topology}/core_id", f"{core}\n")
            self.write(f"{topology}/physical_package_id", f"{socket}\n")
            nodes.setdefault(node, []).append(cpu)
            for index, (level, kind, members) in enumerate(
                ((1, "Data", mates), (1, "Instruction", mates), (2, "Unified", mates), (3, "Unified", package))
            ):
                cache = f"{folder}/cpu{cpu}/cache/index{index}"
                self.write(f"{cache}/level", f"{level}\n")
                self.write(f"{cache}/type", f"{kind}\n")
                self.write(f"{cache}/shared_cpu_list", ",".join(map(str, members)) + "\n")
                self.write(f"{cache}/shared_cpu_map", _mask(members) + "\n")
                if l3_of is not None:
                    self.write(f"{cache}/id", f"{l3_of[socket] if level == 3 else mates[0]}\n")
        for node, members in nodes.items():
            self.write(f"/sys/devices/system/node/node{node}/cpulist", ",".join(map(str, members)) + "\n")
            self.write(f"/sys/devices/system/node/node{node}/cpumap", _mask(members) + "\n")


def _mask(members: list[int]) -> str:
    return f"{sum(1 << member for member in members):x}"
