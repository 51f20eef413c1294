"""What a machine can do, by its files: each feature present, absent, and not to be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.node.cgroup_layout import CgroupDriver, CgroupVersion
from koordinator.node.errors import Unavailable
from koordinator.node.features import (
    FeatureState,
    Undetermined,
    Works,
    probe_gpus,
    probe_machine,
    probe_traffic_control,
)
from koordinator.node.host import Host
from koordinator.node.nvml import NVML
from tests.node.machine import FakeMachine
from tests.node.nvml_library import FakeCard, FakeNvmlLibrary

CGROUP = "/sys/fs/cgroup"
ROUTES = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def states(machine: FakeMachine) -> dict[str, FeatureState]:
    return {feature.name: feature.state for feature in probe_machine(machine.host).features}


def test_an_empty_folder_has_nothing_and_raises_nothing(machine: FakeMachine) -> None:
    report = probe_machine(machine.host)
    assert report.cgroup_version is None
    assert report.cgroup_driver is None
    by_name = {feature.name: feature.state for feature in report.features}
    assert isinstance(by_name["cgroup controller cpu"], Unavailable)
    assert isinstance(by_name["CPU topology"], Undetermined)
    assert all(feature.used_by for feature in report.features)


@pytest.mark.parametrize(
    ("feature", "file"),
    [
        ("CPU burst", "cpu/kubepods.slice/cpu.cfs_burst_us"),
        ("cpu.idle", "cpu/kubepods.slice/cpu.idle"),
        ("group identity (BVT)", "cpu/kubepods.slice/cpu.bvt_warp_ns"),
        ("memory protection (min, low, high)", "memory/kubepods.slice/memory.low"),
        ("memory watermarks", "memory/kubepods.slice/memory.wmark_ratio"),
        ("out-of-memory kills by group", "memory/kubepods.slice/memory.oom.group"),
        ("memory by NUMA node", "memory/kubepods.slice/memory.numa_stat"),
        ("pressure of cgroups (PSI)", "cpuacct/kubepods.slice/cpu.pressure"),
        ("block I/O limits", "blkio/kubepods.slice/blkio.throttle.read_bps_device"),
        ("block I/O weights (iocost)", "blkio/kubepods.slice/blkio.cost.weight"),
        ("network classes", "net_cls/kubepods.slice/net_cls.classid"),
    ],
)
def test_files_of_version_1(machine: FakeMachine, feature: str, file: str) -> None:
    controller = file.partition("/")[0]
    machine.write(f"{CGROUP}/{controller}/kubepods.slice/cgroup.procs", "")
    machine.write(f"{CGROUP}/{controller}/aaa/cgroup.procs", "")
    before = states(machine)[feature]
    assert isinstance(before, Unavailable)
    assert before.needs
    machine.write(f"{CGROUP}/{file}", "0\n")
    assert isinstance(states(machine)[feature], Works)


def test_pressure_of_a_hierarchy_of_version_2_beside_version_1(machine: FakeMachine) -> None:
    machine.write(f"{CGROUP}/cpuacct/kubepods.slice/cgroup.procs", "")
    machine.write(f"{CGROUP}/unified/kubepods.slice/cgroup.procs", "")
    assert isinstance(states(machine)["pressure of cgroups (PSI)"], Unavailable)
    machine.write(f"{CGROUP}/unified/kubepods.slice/cpu.pressure", "0\n")
    assert isinstance(states(machine)["pressure of cgroups (PSI)"], Works)


def test_version_2_has_the_files_of_limits_below_the_root_only(machine: FakeMachine) -> None:
    machine.write(f"{CGROUP}/cgroup.controllers", "cpu memory\n")
    before = states(machine)
    assert isinstance(before["CPU burst"], Undetermined)
    assert before["cgroup controller cpu"] == Works("version 2")
    assert isinstance(before["cgroup controller cpuset"], Unavailable)
    assert isinstance(before["network classes"], Unavailable)
    assert isinstance(before["block I/O limits"], Undetermined)
    machine.write(f"{CGROUP}/kubepods/cpu.max.burst", "0\n")
    assert states(machine)["CPU burst"] == Works("cpu.max.burst")
    report = probe_machine(machine.host)
    assert (report.cgroup_version, report.cgroup_driver) == (CgroupVersion.V2, CgroupDriver.CGROUPFS)


def test_a_file_that_is_not_in_its_format_is_one_unknown_line(machine: FakeMachine) -> None:
    machine.write("/proc/pressure/cpu", "nonsense\n")
    state = states(machine)["pressure of the machine (PSI)"]
    assert isinstance(state, Undetermined)
    assert "has no line some" in state.reason


def test_devices_and_sockets_by_their_files(machine: FakeMachine) -> None:
    machine.write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
    machine.write("/var/run/nri/nri.sock", "")
    now = states(machine)
    assert now["RDMA devices"] == Works("mlx5_0")
    assert now["NRI of containerd"] == Works(f"{machine.root}/var/run/nri/nri.sock")


def test_this_machine() -> None:
    report = probe_machine(Host())
    assert report.kernel
    assert isinstance({feature.name: feature.state for feature in report.features}["CPU topology"], Works)


def test_traffic_control_needs_a_library_a_program_and_a_default_route(machine: FakeMachine) -> None:
    def probe(library: object = True, program: str | None = "/sbin/iptables") -> str:
        return str(probe_traffic_control(machine.host, lambda _: library, lambda _: program))

    assert "psched does not exist" in probe()
    machine.write("/proc/net/psched", "000003e8 00000040 000f4240 3b9aca00\n")
    machine.write("/proc/net/route", f"{ROUTES}eth0\t000A630A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
    assert "pyroute2 is not installed" in probe(library=None)
    assert "iptables is not installed" in probe(program=None)
    assert "has no default route" in probe()
    machine.write("/proc/net/route", f"{ROUTES}eth0\t00000000\t0101630A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
    assert probe() == str(Works("device eth0"))


def test_the_gpus_that_koordlet_would_measure(machine: FakeMachine) -> None:
    library = FakeNvmlLibrary(FakeCard(), FakeCard())
    library.nvmlInit()
    assert probe_gpus(machine.host, lambda _: None, lambda _: NVML(library)) == Works("2 NVIDIA H200, driver 570.86")
    assert not library.is_open


def test_a_driver_without_a_gpu_that_responds(machine: FakeMachine) -> None:
    state = probe_gpus(machine.host, lambda _: None, lambda _: NVML(FakeNvmlLibrary()))
    assert isinstance(state, Unavailable)
    assert state.reason == "NVML names no GPU that responds"


def test_a_library_that_koordlet_could_not_use_does_not_work(machine: FakeMachine) -> None:
    """That of another version than the kernel's module, after an upgrade, say: it is there, and loads."""
    mismatch = Unavailable("NVML: RM has detected an NVML/RM version mismatch.", "a driver")
    assert probe_gpus(machine.host, lambda _: None, lambda _: mismatch) is mismatch
    assert probe_gpus(machine.host, lambda _: mismatch) is mismatch
