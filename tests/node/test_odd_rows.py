"""For every reader: no content of its file raises anything but a FileError, and an odd row costs nothing but itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.node.block_devices import read_block_devices
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.cpu_time import read_cpu_times
from koordinator.node.cpu_topology import read_basic_info, read_cpu_topology
from koordinator.node.errors import FileError, Skipped
from koordinator.node.kidled import read_cold_bytes
from koordinator.node.memory import read_machine_memory, read_numa_memory
from koordinator.node.pci import PciBus
from koordinator.node.pressure import pressure_of_machine, probe_pods
from koordinator.node.rdma import read_rdma_devices
from koordinator.node.resctrl import read_allocation, read_monitors, read_schemata
from koordinator.node.scheduling_delay import read_scheduling_delay
from tests.node.cgroup_files import POD, V1_FILES, V2_FILES
from tests.node.machine import FakeMachine

PRESSURE: Final = "some avg10=1.50 avg60=0.10 avg300=0.00 total=9\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=2\n"
NUMA: Final = "".join(
    f"Node 0 {name}: {amount} kB\n"
    for name, amount in (
        ("MemTotal", 900),
        ("MemFree", 100),
        ("Active(file)", 50),
        ("Inactive(file)", 60),
        ("SReclaimable", 70),
    )
)


class Reader(NamedTuple):
    """``file`` and what it holds on a machine in good health; rows are lines where ``has_rows``."""

    read: Callable[[FakeMachine, Skipped], object]
    file: str
    content: str
    has_rows: bool = True


def v1_reader(machine: FakeMachine) -> CgroupReader:
    return CgroupReader(machine.layout(CgroupVersion.V1), 4096)


def v2_reader(machine: FakeMachine) -> CgroupReader:
    return CgroupReader(machine.layout(CgroupVersion.V2), 4096)


def metered(version: CgroupVersion) -> Callable[[FakeMachine, Skipped], object]:
    def read(machine: FakeMachine, _: Skipped) -> object:
        meter = CgroupMeter(machine.layout(version), 4096, 0)
        return (
            meter.cpu(POD),
            meter.memory(POD),
            meter.cpu_bandwidth(POD),
            meter.cpu_count(POD),
            meter.memory_usage(POD),
        )

    return read


def v1(file: str) -> tuple[str, str]:
    return f"/sys/fs/cgroup/{file.format(POD)}", V1_FILES[file]


def v2(file: str) -> tuple[str, str]:
    return f"/sys/fs/cgroup/{file.format(POD)}", V2_FILES[file]


CPU: Final = "/sys/devices/system/cpu"
RESCTRL: Final = "/sys/fs/resctrl"
READERS: Final = {
    "stat": Reader(
        lambda machine, skipped: read_cpu_times(machine.host, skipped),
        "/proc/stat",
        "cpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\ncpu8 9 9 9 9 9 9 9 9\nintr 9 9\n",
    ),
    "meminfo": Reader(
        lambda machine, _: read_machine_memory(machine.host),
        "/proc/meminfo",
        "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable: 300 kB\n"
        "HugePages_Total: 2\nHugepagesize: 8 kB\nHugetlb: 20 kB\n",
    ),
    "meminfo of a NUMA node": Reader(
        lambda machine, skipped: read_numa_memory(machine.host, skipped),
        "/sys/bus/node/devices/node0/meminfo",
        NUMA,
    ),
    "huge pages of a NUMA node": Reader(
        lambda machine, skipped: read_numa_memory(machine.host, skipped, with_huge_pages=True),
        "/sys/bus/node/devices/node0/hugepages/hugepages-2048kB/nr_hugepages",
        "3\n",
        has_rows=False,
    ),
    "generic initiators": Reader(
        lambda machine, skipped: read_numa_memory(machine.host, skipped),
        "/sys/devices/system/node/has_generic_initiator",
        "3\n",
        has_rows=False,
    ),
    **{
        f"topology: {file}": Reader(
            lambda machine, skipped: read_cpu_topology(machine.host, skipped),
            f"/sys/devices/system/{file}",
            content,
            False,
        )
        for file, content in (
            ("cpu/online", "0-1\n"),
            ("cpu/cpu0/topology/core_cpus_list", "0\n"),
            ("cpu/cpu0/topology/package_cpus_list", "0-1\n"),
            ("cpu/cpu0/cache/index0/level", "1\n"),
            ("cpu/cpu0/cache/index0/type", "Data\n"),
            ("cpu/cpu0/cache/index0/id", "0\n"),
            ("node/node0/cpulist", "0-1\n"),
        )
    },
    "cpuinfo": Reader(
        lambda machine, _: read_basic_info(machine.host, None),
        "/proc/cpuinfo",
        "vendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu\n",
    ),
    "cpu.stat": Reader(metered(CgroupVersion.V2), *v2("{}/cpu.stat")),
    "memory.stat": Reader(metered(CgroupVersion.V2), *v2("{}/memory.stat")),
    "cpu.stat of version 1": Reader(metered(CgroupVersion.V1), *v1("cpu/{}/cpu.stat")),
    "memory.stat of version 1": Reader(metered(CgroupVersion.V1), *v1("memory/{}/memory.stat")),
    "cpuacct.usage": Reader(metered(CgroupVersion.V1), *v1("cpuacct/{}/cpuacct.usage"), has_rows=False),
    "cpu.max": Reader(metered(CgroupVersion.V2), *v2("{}/cpu.max"), has_rows=False),
    "cpuset.cpus.effective": Reader(metered(CgroupVersion.V2), *v2("{}/cpuset.cpus.effective"), has_rows=False),
    "cgroup.threads": Reader(
        lambda machine, _: v2_reader(machine).tasks(POD), *v2("{}/cgroup.threads"), has_rows=False
    ),
    "memory.numa_stat": Reader(
        lambda machine, skipped: v2_reader(machine).numa_memory(POD, skipped), *v2("{}/memory.numa_stat")
    ),
    "memory.numa_stat of version 1": Reader(
        lambda machine, skipped: v1_reader(machine).numa_memory(POD, skipped), *v1("memory/{}/memory.numa_stat")
    ),
    "io.stat": Reader(lambda machine, skipped: v2_reader(machine).io_bytes(POD, skipped), *v2("{}/io.stat")),
    "blkio.throttle.io_service_bytes": Reader(
        lambda machine, skipped: v1_reader(machine).io_bytes(POD, skipped),
        *v1("blkio/{}/blkio.throttle.io_service_bytes"),
    ),
    "cpu.pressure": Reader(
        lambda machine, skipped: v2_reader(machine).pressure(POD, "cpu", skipped), *v2("{}/cpu.pressure")
    ),
    "pressure of the pods": Reader(
        lambda machine, _: probe_pods(machine.layout(CgroupVersion.V2)),
        "/sys/fs/cgroup/kubepods.slice/cpu.pressure",
        PRESSURE,
    ),
    "pressure of the machine": Reader(
        lambda machine, skipped: pressure_of_machine(machine.host, skipped), "/proc/pressure/memory", PRESSURE
    ),
    "mountinfo": Reader(
        lambda machine, skipped: read_block_devices(machine.host, skipped),
        "/proc/1/mountinfo",
        "23 27 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
    ),
    "number of a disk": Reader(
        lambda machine, skipped: read_block_devices(machine.host, skipped), "/sys/class/block/sda/dev", "8:0\n", False
    ),
    "name of a volume": Reader(
        lambda machine, skipped: read_block_devices(machine.host, skipped),
        "/sys/class/block/dm-0/dm/name",
        "a-b\n",
        False,
    ),
    "schemata": Reader(
        lambda machine, _: (read_schemata(machine.host), read_allocation(machine.host)),
        f"{RESCTRL}/schemata",
        "    L3:0=fff;1=7f\n    MB:0=100;1=50\n",
    ),
    "llc_occupancy": Reader(
        lambda machine, _: read_monitors(machine.host, "BE"),
        f"{RESCTRL}/BE/mon_data/mon_L3_00/llc_occupancy",
        "4096\n",
        has_rows=False,
    ),
    "memory.idle_page_stats": Reader(
        lambda machine, _: read_cold_bytes(machine.layout(CgroupVersion.V1), POD),
        f"/sys/fs/cgroup/memory/{POD}/memory.idle_page_stats",
        "# head\n" * 14 + "cfei 1 1 1 1 1 10 20 30\n" * 17,
        has_rows=False,
    ),
    "schedstat": Reader(
        lambda machine, _: read_scheduling_delay(machine.host, 7), "/proc/7/schedstat", "1 2 3\n", has_rows=False
    ),
    "numa_node of a device": Reader(
        lambda machine, _: PciBus(f"{machine.host.sys}/bus/pci/devices").placement("0000:c1:00.0"),
        "/sys/bus/pci/devices/0000:c1:00.0/numa_node",
        "8\n",
        has_rows=False,
    ),
    "sriov_numvfs": Reader(
        lambda machine, _: read_rdma_devices(machine.host),
        "/sys/bus/pci/devices/0000:c1:00.0/sriov_numvfs",
        "0\n",
        has_rows=False,
    ),
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> FakeMachine:
    return healthy_machine(FakeMachine(tmp_path_factory.mktemp("machine")))


def healthy_machine(machine: FakeMachine) -> FakeMachine:
    """With all files, in good health."""
    for path, content in (V1_FILES | V2_FILES).items():
        machine.write(f"/sys/fs/cgroup/{path.format(POD)}", content)
    for path, content in (
        ("/sys/bus/node/devices/node0/meminfo", NUMA),
        ("/sys/class/block/sda/device/model", ""),
        ("/sys/class/block/dm-0/dm/uuid", "LVM-x\n"),
        ("/sys/bus/pci/devices/0000:c1:00.0/class", "0x020700\n"),
        ("/sys/bus/pci/devices/0000:c1:00.0/infiniband/mlx5_0/uevent", ""),
        *((f"/proc/pressure/{resource}", PRESSURE) for resource in ("cpu", "io")),
        *((f"/sys/fs/cgroup/kubepods.slice/{resource}.pressure", PRESSURE) for resource in ("memory", "io")),
        *((reader.file, reader.content) for reader in READERS.values()),
    ):
        machine.write(path, content)
    return machine


def with_content(machine: FakeMachine, reader: Reader, content: bytes) -> object:
    """What is read while the file holds something else."""
    file = machine.root / reader.file.lstrip("/")
    file.write_bytes(content)
    try:
        return reader.read(machine, lambda _: None)
    finally:
        file.write_text(reader.content)


@pytest.mark.parametrize("name", READERS)
@given(content=st.binary(max_size=200) | st.integers().map(lambda number: b"%d" % number) | st.just(b"9" * 5000))
def test_no_content_raises_anything_but_a_file_error(machine: FakeMachine, name: str, content: bytes) -> None:
    with suppress(FileError):
        with_content(machine, READERS[name], content)


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.has_rows])
@given(row=st.binary(max_size=60).map(lambda text: b"?" + text.replace(b"\n", b"").replace(b"\r", b"")), data=st.data())
def test_an_odd_row_costs_nothing_but_itself(machine: FakeMachine, name: str, row: bytes, data: st.DataObject) -> None:
    reader = READERS[name]
    rows = reader.content.encode().splitlines(keepends=True)
    place = data.draw(st.integers(0, len(rows)))
    expected = reader.read(machine, lambda _: None)
    assert with_content(machine, reader, b"".join([*rows[:place], row + b"\n", *rows[place:]])) == expected
