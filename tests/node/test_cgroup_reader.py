"""The kernel's files of one cgroup, versions 1 and 2, well-formed and not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_reader import (
    MAX_SHARES,
    MIN_SHARES,
    NO_LIMIT,
    CgroupReader,
    CPUStat,
    shares_of_weight,
    weight_of_shares,
)
from koordinator.node.errors import FileError, MalformedFileError, MissingFileError, OddRowError
from koordinator.node.pressure import Pressure, Stall
from tests.node.cgroup_files import POD, V1_FILES, V1_STAT, V2_FILES, FakeCgroup
from tests.node.machine import none_odd


class Readings(FakeCgroup):
    """A cgroup and its reader."""

    def __init__(self, root: Path, version: CgroupVersion) -> None:
        super().__init__(root, version)
        self.reader = CgroupReader(self.layout, page_size=4096)


@pytest.fixture(params=list(CgroupVersion), ids=lambda version: version.name)
def readings(request: pytest.FixtureRequest, tmp_path: Path) -> Readings:
    return Readings(tmp_path, request.param)


@pytest.fixture
def v1(tmp_path: Path) -> Readings:
    return Readings(tmp_path, CgroupVersion.V1)


@pytest.fixture
def v2(tmp_path: Path) -> Readings:
    return Readings(tmp_path, CgroupVersion.V2)


def test_usage_is_in_nanoseconds(v1: Readings, v2: Readings, tmp_path: Path) -> None:
    assert v1.reader.cpu_usage(POD) == 123456789
    assert v2.reader.cpu_usage(POD) == 123456000


def test_bytes_on_all_devices(readings: Readings) -> None:
    assert readings.reader.io_bytes(POD, none_odd) == 4608


def test_throttled_periods(readings: Readings) -> None:
    assert readings.reader.cpu_stat(POD) == CPUStat(periods=10, throttled_periods=4, throttled_time=5000)


def test_a_quota_that_is_not_set(readings: Readings) -> None:
    assert readings.reader.cpu_quota(POD) == NO_LIMIT
    assert readings.reader.cpu_period(POD) == 100000


def test_a_quota_of_version_2(v2: Readings) -> None:
    v2.write("{}/cpu.max", "20000 50000\n")
    assert (v2.reader.cpu_quota(POD), v2.reader.cpu_period(POD)) == (20000, 50000)


def test_shares_are_those_of_version_1(v1: Readings, v2: Readings) -> None:
    assert v1.reader.cpu_shares(POD) == 1024
    assert v2.reader.cpu_shares(POD) == 998


def test_cpus_tasks_and_processes(readings: Readings) -> None:
    assert readings.reader.cpuset(POD) == {0, 1, 2, 4}
    assert readings.reader.tasks(POD) == [3, 7]
    assert readings.reader.processes(POD) == [3]


def test_what_a_container_has_put_into_cgroups_of_its_own_counts(readings: Readings) -> None:
    top = readings.layout.folder("cpu", POD)
    # One that cannot be read, as those of version 2 that are threaded, takes nothing from the others.
    Path(top, "empty").mkdir()
    for folder, processes in (("init", "11\n"), ("docker/4b3c", "12\n13\n")):
        Path(top, folder).mkdir(parents=True)
        Path(top, folder, "cgroup.procs").write_text(processes)
    assert sorted(readings.reader.processes(POD)) == [3, 11, 12, 13]
    assert sorted(readings.reader.folders_below(POD, "cpu")) == [
        f"{POD}/docker",
        f"{POD}/docker/4b3c",
        f"{POD}/empty",
        f"{POD}/init",
    ]


def test_memory_and_its_limit(readings: Readings) -> None:
    assert readings.reader.memory_usage(POD) == 65536
    assert readings.reader.memory_limit(POD) == NO_LIMIT


def test_a_memory_limit_that_is_set(v1: Readings) -> None:
    v1.write("memory/{}/memory.limit_in_bytes", "1048576\n")
    assert v1.reader.memory_limit(POD) == 1048576


def test_usage_with_and_without_the_page_cache(readings: Readings) -> None:
    stat = readings.reader.memory_stat(POD)
    assert (stat.usage, stat.usage_with_page_cache) == (307, 3307)


def test_memory_by_numa_node_in_bytes(readings: Readings) -> None:
    assert readings.reader.numa_memory(POD, none_odd) == {0: 12288, 1: 8192}


def test_memory_of_numa_nodes_whose_numbers_have_gaps(v2: Readings) -> None:
    v2.write("{}/memory.numa_stat", "anon N0=1 N8=2 N252=0\nfile N0=9\nunevictable N0=4 N8=8 N252=0\n")
    assert v2.reader.numa_memory(POD, none_odd) == {0: 5, 8: 10, 252: 0}


def test_a_numa_node_with_an_odd_amount_costs_itself(v2: Readings) -> None:
    v2.write("{}/memory.numa_stat", "anon N0=1 N8=x M=3 N16=-1\nunevictable N0=4 N16=8\n")
    odd: list[OddRowError] = []
    assert v2.reader.numa_memory(POD, odd.append) == {0: 5, 16: 8}
    assert len(odd) == 3


def test_a_device_with_an_odd_row_costs_itself(v2: Readings) -> None:
    """Linux 5.15 puts devices that nothing has used before the one that follows, without the end of a line."""
    v2.write("{}/io.stat", "7:1 7:0 8:0 rbytes=1 wbytes=2 rios=1\n(unknown) rbytes=4 wbytes=8\n8:16 rbytes=x\n253:0\n")
    odd: list[OddRowError] = []
    assert v2.reader.io_bytes(POD, odd.append) == 3
    assert len(odd) == 2


def test_a_cgroup_without_the_cpu_controller_was_never_throttled(v2: Readings) -> None:
    v2.write("{}/cpu.stat", "usage_usec 7\nuser_usec 3\nsystem_usec 4\n")
    assert v2.reader.cpu_stat(POD) == CPUStat(0, 0, 0)
    assert v2.reader.cpu_usage(POD) == 7000


def test_memory_that_is_below_nothing_is_malformed(v1: Readings) -> None:
    v1.write("memory/{}/memory.stat", V1_STAT.replace("total_active_anon 200", "total_active_anon -200"))
    with pytest.raises(MalformedFileError, match="total_active_anon is not a count"):
        v1.reader.memory_stat(POD)


def test_tasks_of_other_pid_namespaces_are_left_out(v2: Readings) -> None:
    v2.write("{}/cgroup.threads", "0\n3\n0\n7\n")
    assert v2.reader.tasks(POD) == [3, 7]


@pytest.mark.parametrize(
    "rows", ["full avg10=x avg60=0 avg300=0 total=1\n", "most avg10=1 avg60=1 avg300=1 total=1\n", "full avg10=nan"]
)
def test_an_odd_line_of_pressure_costs_itself(v2: Readings, rows: str) -> None:
    v2.write("{}/cpu.pressure", f"{rows}\nsome avg10=1.50 avg60=0.10 avg300=0.00 total=9\n".replace("\n\n", "\n"))
    odd: list[OddRowError] = []
    assert v2.reader.pressure(POD, "cpu", odd.append) == Pressure(Stall(1.5, 0.1, 0.0, 9), None)
    assert len(odd) == 1


def test_pressure_where_the_kernel_measures_no_full(v1: Readings, v2: Readings) -> None:
    some = Stall(1.5, 0.1, 0.0, 9)
    assert v1.reader.pressure(POD, "cpu", none_odd) == Pressure(some, None)
    assert v2.reader.pressure(POD, "cpu", none_odd) == Pressure(some, Stall(0.5, 0.0, 0.0, 2))


def test_the_class_of_packets(v1: Readings) -> None:
    assert v1.reader.net_class(POD) == 1048577


def ignored(_: OddRowError) -> None:
    """What is wrong with a file whose rows are all odd is in the error."""


READINGS: list[Callable[[CgroupReader, str], object]] = [
    CgroupReader.cpu_usage,
    CgroupReader.cpu_stat,
    CgroupReader.cpu_quota,
    CgroupReader.cpu_period,
    CgroupReader.cpu_shares,
    CgroupReader.cpuset,
    CgroupReader.tasks,
    CgroupReader.processes,
    CgroupReader.memory_usage,
    CgroupReader.memory_limit,
    CgroupReader.memory_stat,
    lambda reader, relative: reader.numa_memory(relative, ignored),
    lambda reader, relative: reader.io_bytes(relative, ignored),
    lambda reader, relative: reader.pressure(relative, "cpu", ignored),
]


@pytest.mark.parametrize("read", READINGS)
def test_a_cgroup_that_is_gone(readings: Readings, read: Callable[[CgroupReader, str], object]) -> None:
    with pytest.raises(MissingFileError, match="does not exist"):
        read(readings.reader, "kubepods.slice/gone")


@pytest.mark.parametrize("read", READINGS)
@pytest.mark.parametrize(
    "content", ["\0\xff", "usage_usec x\n", "some avg10=x\n", "anon N1=3\nfile N0=1\n", "total=1 N0=a\n"]
)
def test_malformed_content_names_the_file(
    readings: Readings, read: Callable[[CgroupReader, str], object], content: str
) -> None:
    for path in V1_FILES | V2_FILES:
        readings.write(path, content)
    with pytest.raises(MalformedFileError, match=POD):
        read(readings.reader, POD)


@pytest.mark.parametrize("weight", ["0", "10001"])
def test_a_weight_out_of_range(v2: Readings, weight: str) -> None:
    v2.write("{}/cpu.weight", weight)
    with pytest.raises(MalformedFileError, match=r"out of \[1, 10000\]"):
        v2.reader.cpu_shares(POD)


@pytest.mark.parametrize("missing", ["total_unevictable", "total_active_file"])
def test_a_kind_of_memory_that_is_absent(v1: Readings, missing: str) -> None:
    v1.write("memory/{}/memory.stat", V1_STAT.replace(missing, "total_other"))
    with pytest.raises(MalformedFileError, match=f"has no {missing}"):
        v1.reader.memory_stat(POD)


@given(content=st.binary(max_size=200))
def test_no_content_raises_anything_else(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    readings = Readings(tmp_path_factory.mktemp("cgroup"), CgroupVersion.V2)
    for path in V2_FILES:
        (readings.machine.root / "sys/fs/cgroup" / path.format(POD)).write_bytes(content)
    for read in READINGS:
        try:
            read(readings.reader, POD)
        except FileError:
            continue


@given(st.integers(MIN_SHARES, MAX_SHARES))
def test_shares_survive_the_way_there_and_back_roughly(shares: int) -> None:
    """One unit of weight is 26 shares."""
    weight = weight_of_shares(shares)
    assert 1 <= weight <= 10000
    assert shares - 27 <= shares_of_weight(weight) <= shares
