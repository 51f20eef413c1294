"""Readings that are taken every second: the same as the reader's, with files that stay open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_meter import CgroupMeter, CPUCounters, MemoryUsage
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import MalformedFileError, MissingFileError
from tests.node.cgroup_files import POD, FakeCgroup
from tests.node.machine import none_odd


@pytest.fixture(params=list(CgroupVersion), ids=lambda version: version.name)
def cgroup(request: pytest.FixtureRequest, tmp_path: Path) -> FakeCgroup:
    return FakeCgroup(tmp_path, request.param)


@pytest.fixture
def meter(cgroup: FakeCgroup) -> Iterator[CgroupMeter]:
    meter = CgroupMeter(cgroup.layout, page_size=4096, descriptor_limit=100)
    yield meter
    meter.close()
    assert meter.open_files == 0


def test_the_readings_are_the_readers(cgroup: FakeCgroup, meter: CgroupMeter) -> None:
    reader = CgroupReader(cgroup.layout, page_size=4096)
    stat, memory = reader.cpu_stat(POD), reader.memory_stat(POD)
    for _ in range(3):
        assert meter.cpu(POD) == CPUCounters(reader.cpu_usage(POD), stat.periods, stat.throttled_periods)
        assert meter.memory(POD) == MemoryUsage(memory.usage, memory.usage_with_page_cache)
        assert meter.numa_memory(POD, none_odd) == reader.numa_memory(POD, none_odd)


def read_or_error(read: Callable[[], object]) -> object:
    try:
        return read()
    except MalformedFileError:
        return MalformedFileError


@pytest.mark.parametrize("version", list(CgroupVersion), ids=lambda version: version.name)
@given(st.data())
def test_whatever_the_order_of_lines_the_meter_reads_what_the_reader_reads(
    tmp_path_factory: pytest.TempPathFactory, version: CgroupVersion, data: st.DataObject
) -> None:
    """The kernel has put lines between others before."""
    cgroup = FakeCgroup(tmp_path_factory.mktemp("cgroup"), version)
    for file, content in cgroup.files.items():
        if file.endswith((".stat", "cpuacct.usage")):
            lines = data.draw(st.permutations(content.splitlines()))
            kept = lines[: data.draw(st.integers(max(len(lines) - 1, 0), len(lines)))]
            extra = data.draw(st.lists(st.sampled_from(["other 5", "usage", "inactive_anonymous 7", "x nr_periods 3"])))
            cgroup.write(file, "".join(f"{line}\n" for line in (*kept, *extra)))
    meter, reader = CgroupMeter(cgroup.layout, 4096, 0), CgroupReader(cgroup.layout, 4096)

    def cpu() -> CPUCounters:
        stat = reader.cpu_stat(POD)
        return CPUCounters(reader.cpu_usage(POD), stat.periods, stat.throttled_periods)

    def memory() -> MemoryUsage:
        stat = reader.memory_stat(POD)
        return MemoryUsage(stat.usage, stat.usage_with_page_cache)

    found, expected = read_or_error(lambda: meter.cpu(POD)), read_or_error(cpu)
    # How long it was throttled is no part of the counters.
    assert found == expected or (expected is MalformedFileError and isinstance(found, CPUCounters))
    assert read_or_error(lambda: meter.memory(POD)) == read_or_error(memory)


def test_what_changes_is_seen_through_a_file_that_stays_open(cgroup: FakeCgroup, meter: CgroupMeter) -> None:
    before = meter.memory(POD)
    opened = meter.open_files
    cgroup.replace_memory("inactive_anon", 100, 5000)
    assert meter.memory(POD).usage == before.usage + 4900
    assert meter.open_files == opened


def test_files_of_cgroups_that_are_gone_are_closed(cgroup: FakeCgroup, meter: CgroupMeter) -> None:
    meter.cpu(POD)
    meter.memory(POD)
    descriptors = len(os.listdir("/proc/self/fd"))
    meter.keep_only({"kubepods.slice/other"})
    assert meter.open_files == 0
    assert len(os.listdir("/proc/self/fd")) < descriptors


def test_beyond_the_limit_files_are_opened_each_time(cgroup: FakeCgroup) -> None:
    meter = CgroupMeter(cgroup.layout, page_size=4096, descriptor_limit=1)
    descriptors = len(os.listdir("/proc/self/fd"))
    first = meter.cpu(POD), meter.memory(POD)
    assert (meter.cpu(POD), meter.memory(POD)) == first
    assert len(os.listdir("/proc/self/fd")) == descriptors + 1
    meter.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_cgroup_that_never_was(meter: CgroupMeter) -> None:
    with pytest.raises(MissingFileError):
        meter.cpu("kubepods.slice/gone")


def test_a_file_in_another_format(cgroup: FakeCgroup, meter: CgroupMeter) -> None:
    for path in cgroup.files:
        cgroup.write(path, "nonsense\n")
    with pytest.raises(MalformedFileError):
        meter.cpu(POD)
    with pytest.raises(MalformedFileError):
        meter.memory(POD)


def test_a_cgroup_without_its_folder(cgroup: FakeCgroup, meter: CgroupMeter) -> None:
    shutil.rmtree(cgroup.machine.root / "sys")
    with pytest.raises(MissingFileError):
        meter.numa_memory(POD, none_odd)


def test_a_file_that_is_longer_than_one_read(tmp_path: Path) -> None:
    cgroup = FakeCgroup(tmp_path, CgroupVersion.V2)
    amounts = " ".join(f"N{number}={1 << 40}" for number in range(256))
    filler = "".join(f"workingset_{number} {amounts}\n" for number in range(9))
    cgroup.write("{}/memory.numa_stat", f"anon {amounts}\n{filler}unevictable {amounts}\n")
    meter = CgroupMeter(cgroup.layout, page_size=4096, descriptor_limit=100)
    for _ in range(2):
        assert meter.numa_memory(POD, none_odd) == dict.fromkeys(range(256), 2 << 40)
    meter.close()
