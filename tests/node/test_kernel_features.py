"""resctrl, perf events, inotify: on files, and on the kernel that runs the tests where it has them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from koordinator.node import perf_events, resctrl
from koordinator.node.errors import MalformedFileError, MissingFileError, Unavailable
from koordinator.node.inotify import Created, Deleted, FolderWatcher, Overflow
from koordinator.node.resctrl import CacheMonitor, Schemata, read_monitors, read_schemata
from tests.node.machine import FakeMachine

FLAGS = "flags : fpu cat_l3 mba cqm_mbm_total cqm_mbm_local cqm_llc cqm_occup_llc\n"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_resctrl_needs_the_cpu_and_the_mount(machine: FakeMachine) -> None:
    without_cpu = resctrl.probe_monitoring(machine.host)
    assert without_cpu is not None
    assert "cqm_llc" in without_cpu.reason
    machine.write("/proc/cpuinfo", FLAGS)
    unmounted = resctrl.probe_allocation(machine.host)
    assert unmounted is not None
    assert "mount -t resctrl" in unmounted.needs
    machine.write("/sys/fs/resctrl/schemata", "L3:0=fff\n")
    assert resctrl.probe_allocation(machine.host) is None
    assert resctrl.probe_monitoring(machine.host) is None


def test_monitors_of_a_group(machine: FakeMachine) -> None:
    for cache in (0, 10, 1):
        folder = f"/sys/fs/resctrl/BE/mon_data/mon_L3_{cache:02}"
        machine.write(f"{folder}/llc_occupancy", f"{cache}5\n")
        machine.write(f"{folder}/mbm_local_bytes", "Unavailable\n")
    machine.write("/sys/fs/resctrl/BE/mon_data/mon_sub_L3_00/llc_occupancy", "1\n")
    assert read_monitors(machine.host, "BE") == (
        CacheMonitor(0, 5, None, None),
        CacheMonitor(1, 15, None, None),
        CacheMonitor(10, 105, None, None),
    )
    with pytest.raises(MissingFileError):
        read_monitors(machine.host, "LSR")


def test_schemata(machine: FakeMachine) -> None:
    machine.write("/sys/fs/resctrl/schemata", "    MB:0=100;1= 50\n    L3:0=fff;1=7f\n  SMBA:0=1\n")
    assert read_schemata(machine.host) == Schemata({0: 0xFFF, 1: 0x7F}, {0: 100, 1: 50})


@pytest.mark.parametrize(
    "content", ["", "L3:0=fff\n", "L3:0=fff\nMB:1=100\n", "L3:0=0\nMB:0=1\n", "L3:0=zz\nMB:0=1\n", "L3:\nMB:\n"]
)
def test_schemata_that_share_out_nothing(machine: FakeMachine, content: str) -> None:
    machine.write("/sys/fs/resctrl/BE/schemata", content)
    with pytest.raises(MalformedFileError, match="BE/schemata"):
        read_schemata(machine.host, "BE")


def test_a_folder_that_is_no_cgroup_cannot_be_counted(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(perf_events.PerfEventError):
        perf_events.CgroupCounter(str(tmp_path), [perf_events.TASK_CLOCK], [0])
    with pytest.raises(perf_events.PerfEventError):
        perf_events.CgroupCounter(str(tmp_path / "gone"), [perf_events.TASK_CLOCK], [0])
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_counter_that_the_kernel_has_given_up_is_an_error() -> None:
    """Of a CPU that went offline, for one: reading it is the end of a file."""
    counter = perf_events.CgroupCounter.__new__(perf_events.CgroupCounter)
    counter._descriptors = {perf_events.CYCLES: [os.open("/dev/null", os.O_RDONLY)]}
    with counter, pytest.raises(perf_events.PerfEventError, match="No such device"):
        counter.read()


def test_why_cycles_cannot_be_counted_is_said(machine: FakeMachine) -> None:
    response = perf_events.probe(machine.host)
    assert response is None or (isinstance(response, Unavailable) and "perf_event_open" in response.reason)


def test_names_that_come_and_go_are_reported_in_order(tmp_path: Path) -> None:
    folder = str(tmp_path)
    watcher = FolderWatcher()
    try:
        watcher.watch(folder)
        assert watcher.read() == []
        (tmp_path / "pod1").mkdir()
        (tmp_path / "pod2").mkdir()
        (tmp_path / "pod1").rmdir()
        assert watcher.read() == [Created(folder, "pod1"), Created(folder, "pod2"), Deleted(folder, "pod1")]
    finally:
        watcher.close()


def test_a_watched_folder_that_is_removed_and_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "pod"
    folder.mkdir()
    watcher = FolderWatcher()
    try:
        watcher.watch(str(folder))
        folder.rmdir()
        assert watcher.read() == []
        folder.mkdir()
        watcher.watch(str(folder))
        (folder / "c").mkdir()
        assert watcher.read() == [Created(str(folder), "c")]
    finally:
        watcher.close()


def test_a_folder_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    watcher = FolderWatcher()
    try:
        with pytest.raises(MissingFileError):
            watcher.watch(str(tmp_path / "gone"))
    finally:
        watcher.close()


def test_events_that_the_kernel_dropped_are_reported() -> None:
    """Filling the kernel's queue takes seconds, so a pipe says what inotify(7) documents."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    watcher = FolderWatcher(reading)
    try:
        os.write(writing, struct.pack("iIII", -1, 0x4000, 0, 0))
        assert watcher.read() == [Overflow()]
    finally:
        watcher.close()
        os.close(writing)
