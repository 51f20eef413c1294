"""Files of real machines, as other projects have collected them: POWER, s390, SPARC, RISC-V, and odd servers.

``machines/topologies.json`` names where each was taken from, and holds no more than is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordinator.koordlet.report.node_topology.zones import zones_of
from koordinator.node.block_devices import read_block_devices
from koordinator.node.cpu_time import read_cpu_times
from koordinator.node.cpu_topology import read_cpu_topology
from koordinator.node.memory import read_numa_memory
from koordinator.node.pressure import pressure_of_machine
from tests.koordlet.report.node_topology.test_description import make_node
from tests.node.machine import FakeMachine, none_odd

MACHINES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "machines/topologies.json").read_text())


def rebuilt(name: str, root: Path) -> FakeMachine:
    """The machine of that name below a folder."""
    machine, recorded = FakeMachine(root), MACHINES[name]
    folder = "/sys/devices/system/cpu"
    machine.write(f"{folder}/online", recorded["online"] + "\n")
    for cpu, (core, socket) in recorded["cpus"].items():
        machine.write(f"{folder}/cpu{cpu}/uevent", "")
        for file, cpus in (("thread_siblings_list", core), ("core_siblings_list", socket)):
            if cpus is not None:
                machine.write(f"{folder}/cpu{cpu}/topology/{file}", f"{cpus}\n")
    for number, cpus in recorded["numa_nodes"].items():
        machine.write(f"/sys/devices/system/node/node{number}/cpulist", f"{cpus}\n")
    for number, meminfo in recorded["memory"].items():
        machine.write(f"/sys/bus/node/devices/node{number}/meminfo", meminfo)
    return machine


@pytest.mark.parametrize("name", [name for name, recorded in MACHINES.items() if "lscpu" in recorded])
def test_cores_sockets_and_numa_nodes_are_those_of_lscpu(name: str, tmp_path: Path) -> None:
    """Which says nothing of NUMA nodes where the kernel has no NUMA."""
    topology = read_cpu_topology(rebuilt(name, tmp_path).host, none_odd)
    found = {str(cpu.cpu): [str(cpu.core), str(cpu.socket), str(cpu.numa_node)] for cpu in topology.cpus}
    expected = {cpu: [core, socket, node or "0"] for cpu, (core, socket, node) in MACHINES[name]["lscpu"].items()}
    assert found == expected


@pytest.mark.parametrize(
    ("name", "with_cpus", "with_memory"),
    [
        ("nvidiagpunumanodes", [0, 8], [0, 8, 250, 251, 252, 253, 254, 255]),
        ("offline-cpu0-node0", [1], [1]),
        ("48amd64-4pa2n6c-sparse", [0, 1, 2, 33, 34, 45, 72, 73], [0, 1, 2, 33, 34, 45, 72, 73]),
    ],
)
def test_numa_nodes_whose_numbers_have_gaps(
    name: str, with_cpus: list[int], with_memory: list[int], tmp_path: Path
) -> None:
    machine = rebuilt(name, tmp_path)
    topology = read_cpu_topology(machine.host, none_odd)
    memory = read_numa_memory(machine.host, none_odd)
    assert sorted(topology.by_numa_node) == with_cpus
    assert [node.number for node in memory] == with_memory
    assert all(0 <= node.usage <= node.total for node in memory)
    zones = zones_of(topology, memory, make_node(), deduct_reserved=False)
    assert {zone.name for zone in zones} == {f"node-{number}" for number in with_memory}


def test_files_of_node_exporter(tmp_path: Path) -> None:
    """Of its collector/fixtures/proc, where a mount has a tab in its name."""
    machine = FakeMachine(tmp_path)
    machine.write(
        "/proc/stat",
        "cpu  301854 612 111922 8979004 3552 2 3944 0 44 36\n"
        "cpu0 44490 19 21045 1087069 220 1 3410 0 2 1\n"
        "intr 8885917 17 0 0\nctxt 38014093\nbtime 1418183276\nprocesses 26442\n",
    )
    for resource in ("cpu", "io", "memory"):
        machine.write(
            f"/proc/pressure/{resource}",
            "some avg10=0.18 avg60=0.34 avg300=0.10 total=159886802\n"
            "full avg10=0.18 avg60=0.34 avg300=0.10 total=159229614\n",
        )
    machine.write("/sys/class/block/.keep", "")
    volumes = "/var/lib/kubelet/plugins/kubernetes.io/vsphere-volume/mounts/[vsanDatastore]"
    machine.write(
        "/proc/1/mountinfo",
        "24 29 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n"
        "43 40 0:33 / /proc/sys/fs/binfmt_misc rw,relatime shared:21 - systemd-1 autofs rw,fd=22,pgrp=1,timeout=300\n"
        "48 45 260:3 / /boot rw,relatime shared:92 - ext2 /dev/sda3 rw\n"
        f"3149 3004 260:0 / {volumes}\\011a/b.vmdk rw,relatime shared:31 - ext4 /dev/sdb rw,data=ordered\n"
        "1128 67 253:0 /var/lib/containers /var/lib/containers rw,relatime - xfs /dev/mapper/rhel-root rw,seclabel\n",
    )
    times = read_cpu_times(machine.host, none_odd)
    assert (times.total, times.by_cpu) == (418334, {0: 68965})
    pressure = pressure_of_machine(machine.host, none_odd)
    assert isinstance(pressure, dict)
    assert pressure["io"].some.avg60 == 0.34
    assert read_block_devices(machine.host, none_odd).mounts == {
        "/boot": "/dev/sda3",
        f"{volumes}\ta/b.vmdk": "/dev/sdb",
        "/var/lib/containers": "/dev/mapper/rhel-root",
    }
