"""One reading of everything, while cgroups come, go, and show nonsense."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.koordlet.collectors.scan import BestEffortReading, Scan, Scanner, ScanTarget
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cgroup_reader import NO_LIMIT
from tests.koordlet.collectors.scans import pod
from tests.node.machine import FakeMachine

_CGROUP = "/sys/fs/cgroup"
_LIMIT = 2048
_CPU_STAT = "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
_MEMORY_STAT = "anon 1\nfile 2\ninactive_anon 0\nactive_anon 1\ninactive_file 2\nactive_file 0\nunevictable 0\n"


class Machine:
    """A version 2 hierarchy, and a scanner of it."""

    def __init__(self, root: Path) -> None:
        self.machine = FakeMachine(root)
        self.meter = CgroupMeter(self.machine.layout(CgroupVersion.V2), 4096, _LIMIT)
        self._scanner = Scanner(self.machine.host, self.meter, ManualClock())

    def add(self, folder: str) -> None:
        self.machine.write(f"{_CGROUP}/{folder}/cpu.stat", _CPU_STAT)
        self.machine.write(f"{_CGROUP}/{folder}/memory.stat", _MEMORY_STAT)

    def scan(self, *pods: NodePod, best_effort: str = "", applications: tuple[str, ...] = ()) -> Scan:
        return self._scanner.scan(ScanTarget(pods, applications, best_effort))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.meter.close()


def test_a_cgroup_that_vanishes_between_two_of_its_files(machine: Machine) -> None:
    for folder in ("a", "a/c", "b"):
        machine.add(folder)
    (machine.machine.root / "sys/fs/cgroup/a/c/cpu.stat").unlink()
    scan = machine.scan(pod("a"), pod("b"))
    assert set(scan.cgroups) == {"a", "b"}
    assert any(path.endswith("/a/c/cpu.stat") for path in scan.errors)
    shutil.rmtree(machine.machine.root / "sys/fs/cgroup/a")
    machine.scan(pod("b"))
    assert machine.meter.open_files == 2


def test_a_thousand_pods_at_once_keep_to_the_limit_of_descriptors(machine: Machine) -> None:
    pods = [pod(f"p{number}") for number in range(1000)]
    for one in pods:
        machine.add(one.cgroup)
        machine.add(f"{one.cgroup}/c")
    for _ in range(2):
        assert len(machine.scan(*pods).cgroups) == 2000
        assert machine.meter.open_files == _LIMIT
    assert machine.scan().cgroups == {}
    assert machine.meter.open_files == 0


def add_best_effort(machine: Machine, quota: str) -> None:
    for folder, cpus in (("be", "0-7"), ("be/pod", "0-7"), ("be/pod/c", "0-1,4")):
        machine.add(folder)
        machine.machine.write(f"{_CGROUP}/{folder}/cpuset.cpus.effective", f"{cpus}\n")
    machine.machine.write(f"{_CGROUP}/be/cpu.max", quota)


def test_best_effort_pods_together(machine: Machine) -> None:
    add_best_effort(machine, "max 100000\n")
    assert machine.scan(pod("be/pod"), pod("a"), best_effort="be").best_effort == BestEffortReading(
        0.0, 5000, NO_LIMIT, 100_000, (8, 3)
    )


def test_a_best_effort_container_that_ends_narrows_nothing(machine: Machine) -> None:
    add_best_effort(machine, "150000 100000\n")
    shutil.rmtree(machine.machine.root / "sys/fs/cgroup/be/pod/c")
    reading = machine.scan(pod("be/pod"), best_effort="be").best_effort
    assert reading is not None
    assert (reading.quota, reading.cpu_counts) == (150_000, (8,))


def test_a_host_application_without_the_cpu_controller_is_measured(machine: Machine) -> None:
    machine.add("nginx")
    machine.machine.write(f"{_CGROUP}/nginx/cpu.stat", "usage_usec 5\n")
    machine.machine.write(f"{_CGROUP}/nginx/memory.current", "4096\n")
    assert machine.scan(applications=("nginx",)).cgroups["nginx"].usage.cpu == 5000


def test_numa_nodes_with_gaps_are_measured(machine: Machine) -> None:
    machine.add("a")
    machine.machine.write(f"{_CGROUP}/a/memory.numa_stat", "anon N0=1 N8=2\nunevictable N0=0 N8=0\n")
    machine.machine.write("/proc/stat", "cpu 1 2 3 4 5 6 7\ncpu0 odd\n")
    machine.machine.write("/proc/meminfo", "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    for number in (0, 8):
        machine.machine.write_numa_memory(number, 100)
    scan = machine.scan(pod("a"))
    assert scan.numa_memory == {"a": {0: 1, 8: 2}}
    assert scan.node is not None
    assert [node.number for node in scan.node.numa_memory] == [0, 8]
    assert [row.problem for row in scan.odd_rows] == ["b'cpu0 odd' is illegally formatted"]


@pytest.mark.parametrize("content", ["max\n", "x 100000\n", ""])
def test_a_quota_that_is_malformed_costs_best_effort_pods_only(machine: Machine, content: str) -> None:
    add_best_effort(machine, content)
    scan = machine.scan(pod("be/pod"), best_effort="be")
    assert scan.best_effort is None
    assert "be/pod" in scan.cgroups


def test_a_host_application_with_what_it_is_charged(machine: Machine) -> None:
    machine.add("nginx")
    machine.machine.write(f"{_CGROUP}/nginx/memory.current", "4096\n")
    assert machine.scan(applications=("nginx", "absent")).memory_usage == {"nginx": 4096}


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_content_of_a_kernel_file_ends_a_round(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, second: bytes
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    for folder in ("be", "be/p", "be/p/c"):
        parent = machine.machine.root / f"sys/fs/cgroup/{folder}"
        parent.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(
            ("cpu.stat", "memory.stat", "memory.numa_stat", "memory.current", "cpu.max", "cpuset.cpus.effective")
        ):
            (parent / name).write_bytes(second if number % 2 else first)
    for name in ("stat", "meminfo"):
        (machine.machine.root / "proc").mkdir(exist_ok=True)
        (machine.machine.root / "proc" / name).write_bytes(first)
    machine.scan(pod("be/p"), best_effort="be", applications=("be/p",))
    machine.meter.close()
