"""CPU time, memory, topology, pressure and cold pages of a whole machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cpu_time import CPUTimes, read_cpu_times
from koordinator.node.cpu_topology import CPUBasicInfo, LogicalCPU, cpu_flags, read_basic_info, read_cpu_topology
from koordinator.node.errors import MalformedFileError, MissingFileError, OddRowError, Unavailable
from koordinator.node.host import MAX_FILE_BYTES, Host, read_file
from koordinator.node.kidled import read_cold_bytes
from koordinator.node.kidled import settings as kidled_settings
from koordinator.node.memory import MachineMemory, NUMANodeMemory, read_machine_memory, read_numa_memory
from koordinator.node.pressure import pressure_of_machine
from tests.examples import examples
from tests.node.machine import FakeMachine, none_odd

STAT = """\
cpu  100 20 30 4000 50 6 7 800 9 10
cpu0 60 10 10 2000 20 3 3 400 4 5
cpu2 40 10 20 2000 30 3 4 400 5 5
intr 12345 0 1
ctxt 99
"""


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_idle_waiting_and_stolen_time_is_not_used(machine: FakeMachine) -> None:
    machine.write("/proc/stat", STAT)
    assert read_cpu_times(machine.host, none_odd) == CPUTimes(total=163, by_cpu={0: 86, 2: 77})


@pytest.mark.parametrize("content", ["", "intr 1\n", "cpu 1 2 3\n", "cpu a b c d e f g h\n"])
def test_a_stat_that_is_illegally_formatted(machine: FakeMachine, content: str) -> None:
    machine.write("/proc/stat", content)
    odd: list[OddRowError] = []
    with pytest.raises(MalformedFileError, match="/proc/stat"):
        read_cpu_times(machine.host, odd.append)
    assert len(odd) == content.startswith("cpu")


@pytest.mark.parametrize(
    "row",
    ["cpu1", "cpu1 1 2 x 4 5 6 7 8", "cpu1 1 2 -3 4 5 6 7", "cpuX 1 2 3 4 5 6 7", "cpu1 " + "9" * 5000 + " 2 3 4"],
)
def test_a_cpu_with_an_odd_line_is_left_out(machine: FakeMachine, row: str) -> None:
    lines = STAT.splitlines()
    machine.write("/proc/stat", "\n".join([*lines[:2], row, *lines[2:]]))
    odd: list[OddRowError] = []
    assert read_cpu_times(machine.host, odd.append) == CPUTimes(total=163, by_cpu={0: 86, 2: 77})
    assert [row.path for row in odd] == [f"{machine.host.proc}/stat"]


def test_columns_of_older_and_of_newer_kernels(machine: FakeMachine) -> None:
    machine.write("/proc/stat", "cpu  100 20 30 4000\ncpu0 60 10 10 2000 20 3 3 400 4 5 6 7 8\n")
    assert read_cpu_times(machine.host, none_odd) == CPUTimes(total=150, by_cpu={0: 86})


def test_memory_without_and_with_the_page_cache(machine: FakeMachine) -> None:
    machine.write("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 300 kB\nHugePages_Total: 4\n")
    memory = read_machine_memory(machine.host)
    assert memory == MachineMemory(total=1024000, free=102400, available=307200)
    assert (memory.usage, memory.usage_with_page_cache) == (716800, 921600)


def test_meminfo_without_what_is_needed(machine: FakeMachine) -> None:
    machine.write("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 pages\n")
    with pytest.raises(MalformedFileError, match="has no MemFree in kB"):
        read_machine_memory(machine.host)


MEMINFO = "MemTotal: 67108864 kB\nMemFree: 12582912 kB\nMemAvailable: 12582912 kB\n"


@pytest.mark.parametrize(
    "pool",
    [
        # Pages of 2 MiB and of 1 GiB; the counts are of the default size alone.
        "HugePages_Total: 8192\nHugepagesize: 2048 kB\nHugetlb: 50331648 kB\n",
        # Before Linux 4.16.
        "HugePages_Total: 24576\nHugePages_Free: 24576\nHugePages_Surp: 0\nHugepagesize: 2048 kB\n",
    ],
)
def test_the_pool_of_huge_pages_is_no_usage(machine: FakeMachine, pool: str) -> None:
    """A node with 4 of its 16 GiB in use, and 48 GiB in huge pages."""
    machine.write("/proc/meminfo", MEMINFO + pool)
    memory = read_machine_memory(machine.host)
    assert (memory.usage >> 30, memory.usage_with_page_cache >> 30, memory.huge_pages >> 30) == (4, 4, 48)


def write_numa(machine: FakeMachine, number: int, total: int, free: int) -> None:
    folder = f"/sys/bus/node/devices/node{number}"
    lines = {"MemTotal": total, "MemFree": free, "Active(file)": 1, "Inactive(file)": 2, "SReclaimable": 3}
    machine.write(f"{folder}/meminfo", "".join(f"Node {number} {name}: {value} kB\n" for name, value in lines.items()))
    machine.write(f"{folder}/hugepages/hugepages-2048kB/nr_hugepages", "5\n")


def test_memory_of_numa_nodes(machine: FakeMachine) -> None:
    write_numa(machine, 1, total=100, free=100)
    write_numa(machine, 0, total=100, free=50)
    machine.write("/sys/bus/node/devices/power/state", "")
    nodes = read_numa_memory(machine.host, none_odd, with_huge_pages=True)
    assert nodes == (
        NUMANodeMemory(0, total=102400, usage=0, huge_pages={2048: 5}),
        NUMANodeMemory(1, total=102400, usage=0, huge_pages={2048: 5}),
    )
    assert nodes[0].huge_page_bytes == 5 * 2048 * 1024
    without = read_numa_memory(machine.host, none_odd)[0]
    assert (without.huge_page_bytes, without.usage) == (0, 44 * 1024)


def test_huge_pages_of_all_sizes_are_no_usage_of_a_numa_node(machine: FakeMachine) -> None:
    write_numa(machine, 0, total=20 << 20, free=1 << 20)
    for size, count in ((64, 16), (1 << 20, 17), (16 << 20, 0)):
        machine.write(f"/sys/bus/node/devices/node0/hugepages/hugepages-{size}kB/nr_hugepages", f"{count}\n")
    (node,) = read_numa_memory(machine.host, none_odd, with_huge_pages=True)
    assert node.huge_pages == {64: 16, 2048: 5, 1 << 20: 17, 16 << 20: 0}
    assert node.usage == (2 << 30) - (11 << 20) - 6 * 1024


def test_a_numa_node_that_is_a_device_is_left_out(machine: FakeMachine) -> None:
    write_numa(machine, 0, total=100, free=50)
    write_numa(machine, 1, total=0, free=0)
    machine.write("/sys/devices/system/node/has_generic_initiator", "1\n")
    assert [node.number for node in read_numa_memory(machine.host, none_odd)] == [0]


@pytest.mark.parametrize("numbers", [[0, 8], [0, 2], [8], [0, 8, 252, 255]])
def test_numa_nodes_with_gaps(machine: FakeMachine, numbers: list[int]) -> None:
    for number in numbers:
        write_numa(machine, number, total=100, free=50)
    assert [node.number for node in read_numa_memory(machine.host, none_odd)] == numbers


def test_a_numa_node_that_cannot_be_read_costs_itself(machine: FakeMachine) -> None:
    write_numa(machine, 0, total=100, free=50)
    write_numa(machine, 1, total=100, free=50)
    machine.write("/sys/bus/node/devices/node1/meminfo", "nonsense\n")
    machine.write("/sys/devices/system/node/has_generic_initiator", "x\n")
    odd: list[OddRowError] = []
    assert [node.number for node in read_numa_memory(machine.host, odd.append)] == [0]
    assert [Path(row.path).name for row in odd] == ["has_generic_initiator", "meminfo"]


def test_no_numa_nodes(machine: FakeMachine) -> None:
    machine.write("/sys/bus/node/devices/x", "")
    with pytest.raises(MalformedFileError, match="has no NUMA node"):
        read_numa_memory(machine.host, none_odd)


# Two sockets, hyper-threads numbered after all first threads, hardware core numbers that repeat.
TWO_SOCKETS = [(0, 0, 0), (0, 4, 0), (1, 0, 1), (1, 4, 1)] * 2


def test_cores_and_sockets_are_numbered_in_the_order_of_their_first_cpu(machine: FakeMachine) -> None:
    machine.write_cpus(TWO_SOCKETS)
    topology = read_cpu_topology(machine.host, none_odd)
    assert topology.cpus[:3] == (
        LogicalCPU(numa_node=0, socket=0, core=0, cpu=0, l1l2="0", l3=0),
        LogicalCPU(numa_node=0, socket=0, core=0, cpu=4, l1l2="0", l3=0),
        LogicalCPU(numa_node=0, socket=0, core=1, cpu=1, l1l2="1", l3=0),
    )
    assert topology.by_core == {0: [0, 4], 1: [1, 5], 2: [2, 6], 3: [3, 7]}
    assert topology.by_socket == {0: [0, 4, 1, 5], 1: [2, 6, 3, 7]}
    assert topology.by_numa_node == topology.by_socket == topology.by_l3


def test_caches_with_numbers_of_their_own(machine: FakeMachine) -> None:
    machine.write_cpus(TWO_SOCKETS, l3_of={0: 3, 1: 9})
    assert set(read_cpu_topology(machine.host, none_odd).by_l3) == {3, 9}


def test_cpus_that_are_offline_are_left_out(machine: FakeMachine) -> None:
    machine.write_cpus(TWO_SOCKETS)
    machine.write("/sys/devices/system/cpu/online", "0-5\n")
    assert {cpu.cpu for cpu in read_cpu_topology(machine.host, none_odd).cpus} == set(range(6))


def test_a_machine_without_numa_has_one_node(machine: FakeMachine) -> None:
    machine.write_cpus(TWO_SOCKETS)
    shutil.rmtree(machine.root / "sys/devices/system/node")
    assert set(read_cpu_topology(machine.host, none_odd).by_numa_node) == {0}


def test_a_cpu_without_a_topology_is_a_core_by_itself(machine: FakeMachine) -> None:
    """Some virtual machines tell none, and a CPU that goes offline while it is read has none either."""
    machine.write("/sys/devices/system/cpu/online", "0-2\n")
    for cpu, online in ((0, None), (1, "1\n"), (2, "0\n")):
        machine.write(f"/sys/devices/system/cpu/cpu{cpu}/uevent", "")
        if online is not None:
            machine.write(f"/sys/devices/system/cpu/cpu{cpu}/online", online)
    topology = read_cpu_topology(machine.host, none_odd)
    assert (topology.by_core, topology.by_socket, topology.by_numa_node) == ({0: [0], 1: [1]}, {0: [0, 1]}, {0: [0, 1]})


def test_numa_nodes_of_cpus_keep_their_numbers(machine: FakeMachine) -> None:
    machine.write_cpus([(0, 0, 8), (0, 1, 8), (1, 0, 16), (1, 1, 16)])
    machine.write("/sys/devices/system/node/node252/cpulist", "\n")
    assert read_cpu_topology(machine.host, none_odd).by_numa_node == {8: [0, 1], 16: [2, 3]}


def test_a_numa_node_whose_list_is_odd_costs_itself(machine: FakeMachine) -> None:
    """What it would have listed belongs to the first one: there may be no NUMA node 0."""
    machine.write_cpus([(0, 0, 8), (0, 1, 8), (1, 0, 16), (1, 1, 16)])
    machine.write("/sys/devices/system/node/node16/cpulist", "2-x\n")
    odd: list[OddRowError] = []
    assert read_cpu_topology(machine.host, odd.append).by_numa_node == {8: [0, 1, 2, 3]}
    assert [row.path for row in odd] == [f"{machine.host.sys}/devices/system/node/node16/cpulist"]


@pytest.mark.parametrize("online", ["0-1\n", "x\n"])
def test_no_cpu_with_a_topology(machine: FakeMachine, online: str) -> None:
    machine.write("/sys/devices/system/cpu/online", online)
    with pytest.raises(MalformedFileError):
        read_cpu_topology(machine.host, none_odd)


@pytest.mark.skipif(shutil.which("lscpu") is None, reason="lscpu is not installed (package util-linux)")
@settings(max_examples=examples(6))
@given(
    sockets=st.integers(1, 3),
    cores=st.integers(1, 4),
    threads=st.integers(1, 2),
    threads_last=st.booleans(),
    numbered=st.booleans(),
)
def test_the_numbers_are_those_of_lscpu(
    tmp_path_factory: pytest.TempPathFactory, sockets: int, cores: int, threads: int, threads_last: bool, numbered: bool
) -> None:
    machine = FakeMachine(tmp_path_factory.mktemp("lscpu"))
    places = [(socket, core * 3, socket) for socket in range(sockets) for core in range(cores)]
    cpus = places * threads if threads_last else [place for place in places for _ in range(threads)]
    machine.write_cpus(cpus, l3_of={socket: 2 * socket for socket in range(sockets)} if numbered else None)
    machine.write("/proc/cpuinfo", "model name\t: Test\n")
    for cpu in range(len(cpus)):
        machine.write(f"/sys/devices/system/cpu/cpu{cpu}/online", "1\n")
    machine.write("/sys/devices/system/cpu/possible", f"0-{len(cpus) - 1}\n")
    machine.write("/sys/devices/system/cpu/present", f"0-{len(cpus) - 1}\n")
    machine.write("/sys/devices/system/cpu/kernel_max", "127\n")
    listed = subprocess.run(
        ["lscpu", "--sysroot", str(machine.root), "-e=CPU,NODE,SOCKET,CORE"],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout.splitlines()[1:]
    expected = sorted(tuple(map(int, line.split())) for line in listed)
    assert (
        sorted((c.cpu, c.numa_node, c.socket, c.core) for c in read_cpu_topology(machine.host, none_odd).cpus)
        == expected
    )


def test_basic_information(machine: FakeMachine) -> None:
    machine.write(
        "/proc/cpuinfo", "vendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu cat_l3\n\nmodel name: X\n"
    )
    machine.write("/sys/devices/system/cpu/smt/active", "1\n")
    machine.write("/sys/devices/system/cpu/intel_pstate/no_turbo", "0\n")
    machine.write("/sys/fs/resctrl/info/L3/cbm_mask", "fff\n")
    assert read_basic_info(machine.host, None) == CPUBasicInfo("Xeon", "GenuineIntel", True, True, "fff")
    assert cpu_flags(machine.host) == {"fpu", "cat_l3"}


def test_basic_information_of_a_machine_that_reports_nothing(machine: FakeMachine) -> None:
    assert read_basic_info(machine.host, None) == CPUBasicInfo()
    assert cpu_flags(machine.host) == frozenset()


def test_hyper_threads_are_seen_in_the_topology_where_the_kernel_does_not_say(machine: FakeMachine) -> None:
    machine.write_cpus(TWO_SOCKETS)
    assert read_basic_info(machine.host, read_cpu_topology(machine.host, none_odd)).hyper_threading


def test_pressure_of_a_kernel_that_does_not_measure_it(machine: FakeMachine) -> None:
    response = pressure_of_machine(machine.host, none_odd)
    assert isinstance(response, Unavailable)
    assert "CONFIG_PSI" in response.needs


def test_cold_pages(machine: FakeMachine) -> None:
    rows = ["csei", "dsei", "cfei", "dfei", "csui", "dsui", "cfui", "dfui", *(f"x{i}" for i in range(9))]
    content = "".join("# head\n" for _ in range(14)) + "".join(f"  {row} 1 1 1 1 1 10 20 30\n" for row in rows)
    machine.write("/sys/fs/cgroup/memory/kubepods/memory.idle_page_stats", content)
    assert read_cold_bytes(machine.layout(CgroupVersion.V1), "kubepods") == 4 * 60
    assert isinstance(read_cold_bytes(machine.layout(CgroupVersion.V2), "kubepods"), Unavailable)
    machine.write("/sys/fs/cgroup/memory/kubepods/memory.idle_page_stats", content + "\n")
    with pytest.raises(MalformedFileError, match="32 lines instead of 31"):
        read_cold_bytes(machine.layout(CgroupVersion.V1), "kubepods")


def test_kidled_is_there_with_both_of_its_files(machine: FakeMachine) -> None:
    assert isinstance(kidled_settings(machine.host), Unavailable)
    machine.write("/sys/kernel/mm/kidled/scan_period_in_seconds", "0\n")
    assert isinstance(kidled_settings(machine.host), Unavailable)
    machine.write("/sys/kernel/mm/kidled/use_hierarchy", "0\n")
    assert set(kidled_settings(machine.host)) == {"scan_period_in_seconds", "use_hierarchy"}  # type: ignore[arg-type]


def test_a_file_without_an_end_is_refused(machine: FakeMachine) -> None:
    machine.write("/proc/stat", "x" * 100)
    with pytest.raises(MalformedFileError, match="more than 10 bytes"):
        read_file(f"{machine.host.proc}/stat", limit=10)
    assert len(read_file(f"{machine.host.proc}/stat", MAX_FILE_BYTES)) == 100


def test_a_folder_in_place_of_a_file(machine: FakeMachine) -> None:
    machine.write("/proc/stat/x", "")
    with pytest.raises(Exception, match="directory"):
        read_file(f"{machine.host.proc}/stat")
    with pytest.raises(MissingFileError):
        read_file(f"{machine.host.proc}/stat/x/y")


def test_this_machine() -> None:
    """The real files of the machine that runs the tests."""
    host = Host()
    times = read_cpu_times(host, none_odd)
    topology = read_cpu_topology(host, none_odd)
    assert {cpu.cpu for cpu in topology.cpus} <= set(times.by_cpu)
    assert 0 < read_machine_memory(host).usage < read_machine_memory(host).total
