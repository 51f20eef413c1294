"""What is measured more rarely: pressure, cycles, caches, cold pages, disks; over files as a kernel shows them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from koordinator.api.host_application import HostApplicationSpec
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.observe.cold_pages import ColdPagesRound, read_hot_pages
from koordinator.koordlet.observe.cycles import CountCgroup, CyclesCollector
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.observe.pressure import PressureCollector
from koordinator.koordlet.observe.resctrl import ResctrlCollector
from koordinator.koordlet.observe.usage_table import UsageTable
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.node import kidled, pressure
from koordinator.node.block_devices import BlockDevices, read_block_devices
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cgroup_meter import MemoryUsage
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import OddRowError, Unavailable
from koordinator.node.memory import MachineMemory
from koordinator.node.perf_events import CYCLES, INSTRUCTIONS, PerfEvent, PerfEventError
from tests.koordlet.observe.measured_machine import named, pod
from tests.node.machine import FakeMachine, none_odd

SOME = "some avg10=1.50 avg60=0.25 avg300=0.10 total=99\n"
FULL = "full avg10=0.50 avg60=0.00 avg300=0.00 total=9\n"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


@pytest.fixture
def metrics() -> AgentMetrics:
    return AgentMetrics(Metrics(), "node-1")


def exported(metrics: AgentMetrics) -> list[str]:
    body, _ = metrics.external.exposition()
    return [line for line in body.decode().splitlines() if not line.startswith("#")]


def write_pressure(machine: FakeMachine, folder: str, cpu: str = SOME + FULL) -> None:
    for resource in ("cpu", "memory", "io"):
        content = cpu if resource == "cpu" else SOME + FULL
        machine.write(f"/sys/fs/cgroup/{folder}/{resource}.pressure", content)


def pressure_collector(machine: FakeMachine, metrics: AgentMetrics) -> PressureCollector:
    return PressureCollector(CgroupReader(machine.layout(CgroupVersion.V2), 4096), metrics)


def test_pressure_of_a_pod_and_its_container(machine: FakeMachine, metrics: AgentMetrics) -> None:
    write_pressure(machine, "a")
    write_pressure(machine, "a/c", cpu=SOME)
    of_pod, of_container = pressure_collector(machine, metrics).collect([pod("a")]).pressures
    assert (of_pod.container, of_container.container) == (None, pod("a").containers[0])
    assert of_pod.pressures["cpu"].some.avg10 == of_container.pressures["io"].some.avg10 == 1.5
    full = of_pod.pressures["memory"].full
    assert full is not None
    assert full.avg10 == 0.5
    assert of_container.pressures["cpu"].full is None


def test_pressure_as_it_is_exported(machine: FakeMachine, metrics: AgentMetrics) -> None:
    write_pressure(machine, "a", cpu=SOME)
    collector = pressure_collector(machine, metrics)
    collector.collect([NodePod(pod("a").pod, "a", "a", ())])
    lines = exported(metrics)
    labels = 'cpu_full_supported="false",node="node-1",pod_name="",pod_namespace="",pod_uid=""'
    assert f'koordlet_pod_psi{{{labels},psi_degree="some",psi_precision="avg60",psi_resource_type="cpu"}} 0.25' in lines
    assert len(lines) == 15
    collector.collect([])
    assert exported(metrics) == []


@pytest.mark.parametrize("content", ["", FULL, "some avg10=x avg60=0 avg300=0 total=0\n", "none\n"])
def test_pressure_that_is_malformed_costs_its_pod_only(
    machine: FakeMachine, metrics: AgentMetrics, content: str
) -> None:
    write_pressure(machine, "a")
    write_pressure(machine, "a/c")
    machine.write("/sys/fs/cgroup/a/memory.pressure", content)
    found = pressure_collector(machine, metrics).collect([pod("a"), pod("gone")])
    assert [(one.pod.uid, one.container is None) for one in found.pressures] == [("a", False)]
    assert len(found.errors) == 3


def test_whether_the_kernel_measures_the_pressure_of_pods(machine: FakeMachine) -> None:
    layout = machine.layout(CgroupVersion.V1)
    assert pressure.probe_pods(layout) is None
    machine.write("/sys/fs/cgroup/cpuacct/kubepods.slice/cpu.pressure", SOME)
    missing = pressure.probe_pods(layout)
    assert missing is not None
    assert "memory.pressure" in missing.reason


def test_a_kernel_that_refuses_to_read_pressure_is_named_once(machine: FakeMachine) -> None:
    """With psi=0 the files are there, and reading them is EOPNOTSUPP; here it is EISDIR."""
    for resource in pressure.RESOURCES:
        (machine.root / f"sys/fs/cgroup/kubepods.slice/{resource}.pressure").mkdir(parents=True)
    missing = pressure.probe_pods(machine.layout(CgroupVersion.V2))
    assert missing is not None
    assert "psi=1" in missing.needs


def test_pressure_of_the_hierarchy_beside_those_of_version_1(machine: FakeMachine, metrics: AgentMetrics) -> None:
    layout = machine.layout(CgroupVersion.V1)
    machine.write("/sys/fs/cgroup/cpuacct/kubepods.slice/cpuacct.usage", "0")
    assert pressure.probe_pods(layout) is not None
    for folder in ("unified/kubepods.slice", "unified/a", "unified/a/c"):
        write_pressure(machine, folder)
    assert pressure.probe_pods(layout) is None
    found = PressureCollector(CgroupReader(layout, 4096), metrics).collect([pod("a")])
    assert [each.pressures["cpu"].some.avg10 for each in found.pressures] == [1.5, 1.5]


def test_a_file_of_version_1_goes_before_the_one_beside_it(machine: FakeMachine) -> None:
    write_pressure(machine, "cpuacct/a")
    write_pressure(machine, "unified/a", cpu="some avg10=9.00 avg60=0.00 avg300=0.00 total=0\n")
    reader = CgroupReader(machine.layout(CgroupVersion.V1), 4096)
    assert reader.pressure("a", "cpu", none_odd).some.avg10 == 1.5


class FakeCounter:
    """Counts as many as its folder's name says."""

    opened = 0

    def __init__(self, folder: str, events: Sequence[PerfEvent], cpus: Sequence[int]) -> None:
        if "refused" in folder:
            raise PerfEventError(13, folder)
        FakeCounter.opened += 1
        self.folder = folder

    def read(self) -> dict[PerfEvent, int]:
        return {CYCLES: 3000, INSTRUCTIONS: 1500}

    def close(self) -> None:
        FakeCounter.opened -= 1


Counts = tuple[list[tuple[str, int, int]], float, set[str]]


def cycles(pods: list[NodePod], metrics: AgentMetrics, cpus: int = 2) -> Counts:
    """What was counted, how long it took, and which containers failed."""
    clock = ManualClock()
    layout = CgroupLayout("/cg", CgroupVersion.V1, CgroupDriver.CGROUPFS)
    collector = CyclesCollector(layout, cast("CountCgroup", FakeCounter), clock, metrics)

    async def run() -> Counts:
        task = asyncio.create_task(collector.collect(pods, range(cpus), window=10))
        while not task.done():
            await clock.advance(1)
        found = await task
        counts = [(each.container.id, each.cycles, each.instructions) for each in found.counts]
        return counts, clock.monotonic(), set(found.errors)

    return asyncio.run(run())


def test_cycles_and_instructions_of_one_window(metrics: AgentMetrics) -> None:
    counts, seconds, failed = cycles([pod("a"), pod("refused")], metrics)
    assert counts == [("containerd://a", 3000, 1500)]
    assert failed == {"containerd://refused"}
    assert 10 <= seconds < 13
    assert FakeCounter.opened == 0
    assert sum('cpi_field="cycles"' in line for line in exported(metrics)) == 1


def test_where_descriptors_are_few_containers_take_turns(metrics: AgentMetrics) -> None:
    counts, seconds, _ = cycles([pod(str(number)) for number in range(3)], metrics, cpus=2048)
    assert len(counts) == 3
    assert 30 <= seconds < 36


def test_counting_that_is_cancelled_leaves_nothing_open(metrics: AgentMetrics) -> None:
    clock = ManualClock()
    layout = CgroupLayout("/cg", CgroupVersion.V1, CgroupDriver.CGROUPFS)
    collector = CyclesCollector(layout, cast("CountCgroup", FakeCounter), clock, metrics)

    async def run() -> None:
        task = asyncio.create_task(collector.collect([pod("a")], [0], window=10))
        await clock.advance(5)
        assert FakeCounter.opened == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert FakeCounter.opened == 0


def write_resctrl(machine: FakeMachine, group: str, occupancy: str) -> None:
    folder = f"/sys/fs/resctrl/{group}/mon_data/mon_L3_00"
    machine.write(f"{folder}/llc_occupancy", occupancy)
    machine.write(f"{folder}/mbm_local_bytes", "10\n")
    machine.write(f"{folder}/mbm_total_bytes", "20\n")


def test_caches_and_bandwidth_by_class(machine: FakeMachine, metrics: AgentMetrics) -> None:
    machine.write("/sys/fs/resctrl/schemata", "L3:0=fff\nMB:0=100\n")
    write_resctrl(machine, "BE", "4096\n")
    write_resctrl(machine, "LS", "Unavailable\n")
    collector = ResctrlCollector(machine.host, metrics)
    collector.collect()
    assert exported(metrics) == [
        'koordlet_resctrl_llc_occupancy{cache_id="0",node="node-1",qos="BE"} 4096.0',
        *(
            f'koordlet_resctrl_memory_bandwidth{{cache_id="0",mb_type="{kind}",node="node-1",qos="{qos}"}} {size}'
            for qos in ("LS", "BE")
            for kind, size in (("mbm_local_bytes", 10.0), ("mbm_total_bytes", 20.0))
        ),
    ]
    collector.collect(is_there=False)
    assert exported(metrics) == []


@pytest.mark.parametrize("schemata", ["L3:0=fff\n", "L3CODE:0=fff\nL3DATA:0=fff\nMB:0=100\n", ""])
def test_what_is_monitored_does_not_depend_on_what_is_shared_out(
    machine: FakeMachine, metrics: AgentMetrics, schemata: str
) -> None:
    machine.write("/sys/fs/resctrl/schemata", schemata)
    write_resctrl(machine, "BE", "4096\n")
    ResctrlCollector(machine.host, metrics).collect()
    assert len(exported(metrics)) == 3


def idle_page_stats(cold: int) -> str:
    head = "".join(f"# line {number}\n" for number in range(14))
    rows = "".join(f"{name} 1 1 1 1 1 {cold} 0 0\n" for name in ("cfei", "dfei", "cfui", "dfui"))
    return head + rows + "".join(f"cs{number} 0 0 0 0 0 9 9 9\n" for number in range(13))


def cold_pages(machine: FakeMachine, version: CgroupVersion = CgroupVersion.V1) -> ColdPagesRound | Unavailable:
    table, layout = UsageTable(1.0, 5.0), machine.layout(version)
    table.set_pods([pod("a"), pod("new")])
    table.set_host_applications([HostApplicationSpec(name="nginx")], layout)
    node, a, nginx = table.node, table.pods["a"], table.host_applications["nginx"]
    node.memory, node.at = MachineMemory(total=100, free=20, available=60), 1
    amounts = {a: (100, 150), a.containers["containerd://a"]: (10, 10), nginx: (1000, 1000)}
    for row, memory in amounts.items():
        row.memory, row.memory_at = MemoryUsage(*memory), 1
    return read_hot_pages(layout, table)


def test_cold_pages_of_everything(machine: FakeMachine) -> None:
    for folder, cold in (("", 5), ("a/", 10), ("nginx/", 30)):
        machine.write(f"/sys/fs/cgroup/memory/{folder}memory.idle_page_stats", idle_page_stats(cold))
    found = cold_pages(machine)
    assert isinstance(found, ColdPagesRound)
    assert named(found.samples) == {
        "node_memory_with_hot_page_usage": 60,
        "pod_memory_with_hot_page_usage a": 110,
        "host_application_memory_with_hot_page_usage nginx": 880,
    }


def test_cold_pages_that_cannot_be_read_cost_their_cgroup_only(machine: FakeMachine) -> None:
    machine.write("/sys/fs/cgroup/memory/memory.idle_page_stats", idle_page_stats(5))
    machine.write("/sys/fs/cgroup/memory/a/memory.idle_page_stats", "short\n")
    found = cold_pages(machine)
    assert isinstance(found, ColdPagesRound)
    assert set(named(found.samples)) == {"node_memory_with_hot_page_usage"}
    assert len(found.errors) == 2


def test_cold_pages_are_unavailable_on_version_2(machine: FakeMachine) -> None:
    assert isinstance(cold_pages(machine, CgroupVersion.V2), Unavailable)


def test_kidled_is_switched_on_and_left_alone_after(machine: FakeMachine) -> None:
    assert isinstance(kidled.switch_on(machine.host), Unavailable)
    folder = "/sys/kernel/mm/kidled"
    machine.write(f"{folder}/scan_period_in_seconds", "0\n")
    machine.write(f"{folder}/use_hierarchy", "0\n")
    assert kidled.switch_on(machine.host) is None
    file = machine.root / folder.lstrip("/") / "scan_period_in_seconds"
    assert file.read_text().startswith("5")
    os.utime(file, (1, 1))
    assert kidled.switch_on(machine.host) is None
    assert file.stat().st_mtime == 1


def write_disks(machine: FakeMachine) -> None:
    """A disk with two partitions, of which one is LVM's; an NVMe disk; a volume group over both; a loop device."""
    devices = "/sys/devices/pci"
    for name, number in (("sda", "8:0"), ("nvme0n1", "259:0")):
        machine.write(f"{devices}/{name}/dev", f"{number}\n")
        machine.write(f"{devices}/{name}/device/model", "disk\n")
    for name, parent in (("sda1", "sda"), ("sda2", "sda"), ("nvme0n1p1", "nvme0n1")):
        machine.write(f"{devices}/{parent}/{name}/partition", "1\n")
    for name, volume, slaves in (
        ("dm-0", "vg--one-root", ["sda2"]),
        ("dm-1", "both-data", ["sda2", "nvme0n1p1"]),
        ("dm-2", "vg--one-snap", ["dm-0"]),
    ):
        machine.write(f"{devices}/{name}/dm/name", f"{volume}\n")
        machine.write(f"{devices}/{name}/dm/uuid", "LVM-abc\n")
        for slave in slaves:
            machine.write(f"{devices}/{name}/slaves/{slave}/dev", "0:0\n")
    machine.write(f"{devices}/dm-9/dm/uuid", "CRYPT-abc\n")
    machine.write(f"{devices}/loop0/dev", "7:0\n")
    links = machine.root / "sys/class/block"
    links.mkdir(parents=True)
    for name in ("sda", "nvme0n1", "dm-0", "dm-1", "dm-2", "dm-9", "loop0"):
        (links / name).symlink_to(machine.root / f"sys/devices/pci/{name}")
    for name, parent in (("sda1", "sda"), ("sda2", "sda"), ("nvme0n1p1", "nvme0n1")):
        (links / name).symlink_to(machine.root / f"sys/devices/pci/{parent}/{name}")
    machine.write(
        "/proc/1/mountinfo",
        "22 27 0:21 / /proc rw - proc proc rw\n"
        "23 27 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "24 23 253:0 / /var/my\\040data rw - xfs /dev/mapper/vg--one-root rw\n"
        "broken\n",
    )


def test_disks_partitions_volumes_and_mounts(machine: FakeMachine) -> None:
    write_disks(machine)
    odd: list[OddRowError] = []
    devices = read_block_devices(machine.host, odd.append)
    assert [row.problem for row in odd] == ["'broken' is no mount"]
    assert devices == BlockDevices(
        disks={"/dev/sda": "8:0", "/dev/nvme0n1": "259:0"},
        partitions={"/dev/sda1": "/dev/sda", "/dev/sda2": "/dev/sda", "/dev/nvme0n1p1": "/dev/nvme0n1"},
        volume_groups={"vg-one": "/dev/sda"},
        logical_volumes={
            "/dev/mapper/vg--one-root": "vg-one",
            "/dev/mapper/vg--one-snap": "vg-one",
            "/dev/mapper/both-data": "both",
        },
        mounts={"/": "/dev/sda1", "/var/my data": "/dev/mapper/vg--one-root"},
    )
    numbers = {
        name: devices.disk_number(name) for name in ("/dev/sda1", "/dev/mapper/vg--one-root", "/dev/mapper/both-data")
    }
    assert numbers == {"/dev/sda1": "8:0", "/dev/mapper/vg--one-root": "8:0", "/dev/mapper/both-data": None}


def test_what_the_node_is_made_of_stays_known_while_it_cannot_be_read(
    machine: FakeMachine, metrics: AgentMetrics
) -> None:
    machine.write_cpus([(0, 0, 0), (0, 1, 0)])
    write_disks(machine)
    info = NodeInfo(machine.host, metrics, with_huge_pages=False)
    info.refresh()
    info.refresh_storage()
    topology, disks = info.topology, info.block_devices
    assert topology is not None
    (machine.root / "sys/devices/system/cpu/online").unlink()
    (machine.root / "proc/1/mountinfo").unlink()
    info.refresh()
    info.refresh_storage()
    assert (info.topology, info.block_devices) == (topology, disks)
    body, _ = metrics.internal.exposition()
    for status in ("succeeded", "failed"):
        for name in ("cpu", "local_storage"):
            line = f'koordlet_collect_node_{name}_info_status{{node="node-1",status="{status}"}} 1.0'
            assert line in body.decode()


def test_an_odd_row_is_counted_each_time_and_named_once(
    machine: FakeMachine, metrics: AgentMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    machine.write_cpus([(0, 0, 0), (0, 1, 8)])
    machine.write_numa_memory(0, 100)
    machine.write_numa_memory(8, 100)
    write_disks(machine)
    info = NodeInfo(machine.host, metrics, with_huge_pages=False)
    for number in range(3):
        machine.write("/sys/bus/node/devices/node8/meminfo", f"Node 8 MemTotal: {number} pages\n")
        info.refresh()
        info.refresh_storage()
    body = metrics.internal.exposition()[0].decode()
    assert 'koordlet_kernel_file_odd_rows{file="meminfo",node="node-1"} 3.0' in body
    assert 'koordlet_kernel_file_odd_rows{file="mountinfo",node="node-1"} 3.0' in body
    assert [record.getMessage().rpartition("/")[2] for record in caplog.records] == [
        "meminfo: has no MemTotal in kB",
        "mountinfo: 'broken' is no mount",
    ]


def test_what_cannot_be_read_of_the_node_is_named_once(
    machine: FakeMachine, metrics: AgentMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    info = NodeInfo(machine.host, metrics, with_huge_pages=False)
    for _ in range(3):
        info.refresh()
    assert caplog.text.count("the topology of the CPUs stays as it was") == 1
    assert caplog.text.count("the NUMA nodes stay as they were") == 1


def test_containers_have_their_own_names(machine: FakeMachine, metrics: AgentMetrics) -> None:
    write_pressure(machine, "a")
    write_pressure(machine, "a/c")
    made = NodePod(pod("a").pod, "a", "a", (PodContainer("main", "containerd://c", "a/c"),))
    pressure_collector(machine, metrics).collect([made])
    assert any('container_id="containerd://c",container_name="main"' in line for line in exported(metrics))
