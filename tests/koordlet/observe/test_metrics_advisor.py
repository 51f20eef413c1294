"""Rounds of measuring, from files as a kernel shows them to samples: while cgroups come, go, and show nonsense."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.host_application import HostApplicationSpec
from koordinator.koordlet.report.resource_metrics import export_usage
from tests.koordlet.observe.measured_machine import BEST_EFFORT, DESCRIPTORS, MeasuredMachine, pod

JOB = f"{BEST_EFFORT}/job"
NGINX = HostApplicationSpec(name="nginx", qos="LS")
NGINX_FOLDER = "host-latency-sensitive/nginx"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[MeasuredMachine]:
    machine = MeasuredMachine(tmp_path)
    yield machine
    machine.meter.close()


def of(samples: dict[str, float], *words: str) -> dict[str, float]:
    """Those whose name and labels have one of the words."""
    return {name: value for name, value in samples.items() if any(word in name for word in words)}


def test_pods_and_containers_have_samples_of_cpu_from_their_second_round_on(machine: MeasuredMachine) -> None:
    machine.show_pods(pod("a"))
    machine.write_cgroup("a", memory=120, periods=10, throttled=5)
    machine.write_cgroup("a/c", memory=90)
    assert machine.measure() == {
        "pod_memory_usage a": 120,
    }
    machine.write_cgroup("a", micros=1_000_000, periods=20, throttled=8)
    machine.write_cgroup("a/c", micros=500_000)
    assert machine.measure(2) == {
        "pod_cpu_usage a": 0.5,
        "pod_cpu_throttled a": 0.3,
    }


def test_the_memory_of_pods_is_read_every_five_seconds_and_that_of_the_node_in_each_round(
    machine: MeasuredMachine,
) -> None:
    machine.show_pods(pod("a"))
    found = []
    for second in range(12):
        machine.write_cgroup("a", memory=second)
        machine.write_cgroup("a/c", memory=second)
        machine.write_node(second, available=100 - second)
        found.append(of(machine.measure(), "memory_usage"))
    assert [each.get("pod_memory_usage a") for each in found] == [0, *[None] * 4, 5, *[None] * 4, 10, None]
    assert [each.get("node_memory_usage") for each in found] == [None, *(1024 * second for second in range(1, 12))]


def test_a_pod_that_appears_between_two_readings_of_memory_is_known_at_once_and_kept_later(
    machine: MeasuredMachine,
) -> None:
    machine.measure()
    machine.show_pods(pod("a"))
    machine.write_cgroup("a", memory=120)
    machine.write_cgroup("a/c")
    assert of(machine.measure(), "memory") == {}
    assert machine.table.pods["a"].memory.usage == 120
    machine.write_memory("a", 130)
    machine.measure()
    assert machine.table.pods["a"].memory.usage == 120


def test_memory_with_page_cache(tmp_path: Path) -> None:
    machine = MeasuredMachine(tmp_path, with_page_cache=True)
    machine.show_pods(pod("a"), pod("gone"))
    for folder, memory in (("a", 5), ("a/c", 1)):
        machine.write_cgroup(folder, memory=memory, cache=10)
    machine.write_node(0)
    assert of(machine.measure(), "page_cache") == {
        "pod_memory_usage_with_page_cache a": 15,
    }
    assert of(machine.measure(), "page_cache") == {"node_memory_usage_with_page_cache": 80 * 1024}
    machine.meter.close()


def test_a_pod_whose_memory_cannot_be_read_has_its_cpu(machine: MeasuredMachine) -> None:
    machine.show_pods(pod("a"))
    for micros in (0, 500_000):
        machine.write_cgroup("a", micros=micros)
        machine.write("a/memory.stat", "nonsense\n")
        samples = machine.measure()
    assert samples == {"pod_cpu_usage a": 0.5, "pod_cpu_throttled a": 0.0}


def test_a_cgroup_that_vanishes_between_two_of_its_files(machine: MeasuredMachine) -> None:
    machine.show_pods(pod("a"), pod("b"))
    for folder in ("a", "a/c", "b", "b/c"):
        machine.write_cgroup(folder)
    machine.measure()
    root = machine.machine.root / "sys/fs/cgroup"
    (root / "a/c/cpu.stat").unlink()
    machine.meter.close()
    assert set(of(machine.measure(), "cpu_usage")) == {"pod_cpu_usage a", "pod_cpu_usage b"}
    shutil.rmtree(root / "a")
    machine.show_pods(pod("b"))
    machine.measure(5)
    assert machine.meter.open_files == 4


def test_a_thousand_pods_at_once_keep_to_the_limit_of_descriptors(machine: MeasuredMachine) -> None:
    pods = [pod(f"p{number}") for number in range(1000)]
    for one in pods:
        machine.write_cgroup(one.cgroup)
        machine.write_cgroup(f"{one.cgroup}/c")
    machine.show_pods(*pods)
    for _ in range(2):
        samples = machine.measure()
        assert machine.meter.open_files == DESCRIPTORS
        assert all(row.read_at == machine.clock.monotonic() for row in machine.table.cgroups)
    assert len(of(samples, "cpu_usage")) == 1000
    machine.show_pods()
    machine.measure()
    assert machine.meter.open_files == 0


def write_best_effort(machine: MeasuredMachine, quota: str, micros: int = 0) -> None:
    for folder, cpus in ((BEST_EFFORT, "0-7"), (JOB, "0-7"), (f"{JOB}/c", "0-1,4")):
        machine.write_cgroup(folder, micros=micros)
        machine.write(f"{folder}/cpuset.cpus.effective", f"{cpus}\n")
    machine.write(f"{BEST_EFFORT}/cpu.max", quota)


def best_effort(samples: dict[str, float]) -> dict[str, float]:
    return {name.rpartition(" ")[2]: value for name, value in of(samples, "node_be").items()}


@pytest.mark.parametrize(
    ("quota", "limit"),
    [
        ("max 100000\n", 3000),
        ("150000 100000\n", 1500),
        ("800000 100000\n", 3000),
        ("33333 100000\n", 333),
        ("50000 0\n", 3000),
    ],
)
def test_the_real_limit_of_best_effort_pods_is_the_narrower_of_cpusets_and_quota(
    machine: MeasuredMachine, quota: str, limit: int
) -> None:
    machine.show_pods(pod(JOB), pod("a"))
    write_best_effort(machine, quota)
    assert best_effort(machine.measure()) == {"usage": 0, "real-limit": limit, "request": 0}
    write_best_effort(machine, quota, micros=2_500_999)
    assert best_effort(machine.measure())["usage"] == 2500


def test_a_best_effort_container_that_ends_narrows_nothing(machine: MeasuredMachine) -> None:
    machine.show_pods(pod(JOB))
    write_best_effort(machine, "max 100000\n")
    shutil.rmtree(machine.machine.root / f"sys/fs/cgroup/{JOB}/c")
    assert best_effort(machine.measure())["real-limit"] == 8000


@pytest.mark.parametrize("content", ["max\n", "x 100000\n", ""])
def test_a_quota_that_is_malformed_costs_best_effort_pods_only(machine: MeasuredMachine, content: str) -> None:
    machine.show_pods(pod(JOB))
    write_best_effort(machine, content)
    machine.measure()
    assert set(of(machine.measure(), "node_be", "pod_cpu_usage")) == {f"pod_cpu_usage {JOB}"}


def test_without_cpusets_all_cpus_are_the_limit(machine: MeasuredMachine) -> None:
    machine.write_cgroup(BEST_EFFORT)
    machine.write(f"{BEST_EFFORT}/cpu.max", "max 100000\n")
    machine.write(f"{BEST_EFFORT}/cpuset.cpus.effective", "\n")
    assert best_effort(machine.measure()) == {}
    machine.machine.write_cpus([(0, 0, 0), (0, 1, 0), (0, 2, 0)])
    machine.info.refresh()
    assert best_effort(machine.measure())["real-limit"] == 3000


def test_host_applications_with_what_they_are_charged(machine: MeasuredMachine) -> None:
    machine.show_pods(applications=[NGINX, HostApplicationSpec(name="absent")])
    for micros in (0, 500_000):
        machine.write(f"{NGINX_FOLDER}/cpu.stat", f"usage_usec {micros}\n")
        machine.write_memory(NGINX_FOLDER, 120)
        machine.write(f"{NGINX_FOLDER}/memory.current", "4096\n")
        found = [machine.measure()]
    found.append(machine.measure(5))
    assert of(found[0], "nginx") == {"host_application_cpu_usage nginx": 0.5}
    assert of(found[1], "nginx", "memory") == {
        "host_application_cpu_usage nginx": 0.0,
        "host_application_memory_usage nginx": 120,
        "host_application_memory_usage_with_page_cache nginx": 4096,
    }


def test_a_host_application_of_which_the_kernel_tells_no_charge_has_no_memory(machine: MeasuredMachine) -> None:
    machine.show_pods(applications=[NGINX])
    for micros in (0, 500_000):
        machine.write_cgroup(NGINX_FOLDER, micros=micros, memory=120)
        machine.write_node(micros // 10_000)
        samples = machine.measure(5)
    assert of(samples, "nginx", "sys_") == {
        "host_application_cpu_usage nginx": 0.1,
        "sys_cpu_usage": 0.1,
        "sys_memory_usage": 40 * 1024,
    }


def test_nothing_is_exported_before_the_first_round(machine: MeasuredMachine) -> None:
    export_usage(machine.metrics, machine.table)
    exported = machine.metrics.internal.exposition()[0].decode()
    assert "koordlet_node_used_cpu_cores{" not in exported
    for second in range(2):
        machine.write_node(100 * second)
        machine.measure()
    assert 'koordlet_node_used_cpu_cores{node="node-1"} 1.0' in machine.metrics.internal.exposition()[0].decode()


def test_the_node_and_what_is_left_for_the_system(machine: MeasuredMachine) -> None:
    machine.show_pods(pod("a"))
    for second in range(2):
        machine.write_cgroup("a", micros=500_000 * second, memory=1024)
        machine.write_node(200 * second)
        samples = machine.measure()
    assert of(samples, "node_", "sys_") == {
        "node_cpu_usage": 2.0,
        "node_memory_usage": 40 * 1024,
        "sys_cpu_usage": 1.5,
        "sys_memory_usage": 39 * 1024,
    }
    machine.states.has_synced_pods = False
    assert of(machine.measure(), "sys_") == {}


def test_a_round_in_which_the_node_cannot_be_read_is_left_out(machine: MeasuredMachine) -> None:
    machine.write_node(1000)
    machine.measure()
    machine.machine.write("/proc/meminfo", "MemTotal: lots\n")
    assert of(machine.measure(), "node_") == {}
    machine.write_node(1400)
    assert machine.measure()["node_cpu_usage"] == 2.0


def test_the_one_numa_node_is_not_read(machine: MeasuredMachine) -> None:
    machine.machine.write_cpus([(0, 0, 0)])
    machine.machine.write_numa_memory(0, 100)
    machine.info.refresh()
    machine.show_pods(pod("a"))
    for second in range(2):
        machine.write_cgroup("a", memory=1024)
        machine.write("a/memory.numa_stat", "anon N0=7\nunevictable N0=0\n")
        machine.write_node(100 * second, by_cpu={0: 50 * second})
        samples = machine.measure()
    assert of(samples, "numa") == {
        "node_numa_cpu_usage 0": 1.0,
        "node_numa_memory_usage 0": 45 * 1024,
        "sys_numa_cpu_usage 0": 1.0,
        "sys_numa_memory_usage 0": 44 * 1024,
    }
    assert machine.table.pods["a"].numa_memory == {}


def test_numa_nodes_with_gaps_are_measured(machine: MeasuredMachine, caplog: pytest.LogCaptureFixture) -> None:
    machine.machine.write_cpus([(0, 0, 0), (0, 1, 8)])
    for number in (0, 8):
        machine.machine.write_numa_memory(number, 100)
    machine.info.refresh()
    machine.show_pods(pod("a"))
    found = []
    for second in range(6):
        machine.write_cgroup("a", memory=3)
        machine.write("a/memory.numa_stat", "anon N0=1 N8=2\nunevictable N0=0 N8=0\n")
        machine.write_node(100 * second, by_cpu={0: 30 * second, 1: 70 * second})
        machine.machine.write("/proc/stat", f"{(machine.machine.root / 'proc/stat').read_text()}cpu2 odd\n")
        found.append(of(machine.measure(), "numa"))
    assert machine.table.pods["a"].numa_memory == {0: 1, 8: 2}
    assert found[4] == {
        "node_numa_cpu_usage 0": 0.3,
        "node_numa_cpu_usage 8": 0.7,
        "sys_numa_cpu_usage 0": 0.3,
        "sys_numa_cpu_usage 8": 0.7,
    }
    assert of(found[5], "memory") == {
        "node_numa_memory_usage 0": 0,
        "node_numa_memory_usage 8": 0,
        "sys_numa_memory_usage 0": 0,
        "sys_numa_memory_usage 8": 0,
    }
    assert caplog.text.count("b'cpu2 odd' is illegally formatted") == 1
    body = machine.metrics.internal.exposition()[0].decode()
    assert 'koordlet_kernel_file_odd_rows{file="stat",node="node-1"} 6.0' in body


def test_what_cannot_be_read_is_named_once_and_once_when_it_can_be_again(
    machine: MeasuredMachine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "koordinator")
    machine.write_node(0)
    machine.machine.write("/proc/meminfo", "MemTotal: lots\n")
    for _ in range(3):
        machine.measure()
    machine.write_node(0)
    asyncio.run(machine.clock.advance(301))
    machine.measure()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("koordinator")]
    assert [text.rpartition("/")[2] for text in said] == ["meminfo: has no MemTotal in kB", "meminfo"]
    assert said[1].startswith("can be read again: 1 files, such as ")


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_content_of_a_kernel_file_ends_a_round(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, second: bytes
) -> None:
    machine = MeasuredMachine(tmp_path_factory.mktemp("machine"))
    for folder in (BEST_EFFORT, JOB, f"{JOB}/c", NGINX_FOLDER):
        parent = machine.machine.root / f"sys/fs/cgroup/{folder}"
        parent.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(
            ("cpu.stat", "memory.stat", "memory.numa_stat", "memory.current", "cpu.max", "cpuset.cpus.effective")
        ):
            (parent / name).write_bytes(second if number % 2 else first)
    for name in ("stat", "meminfo"):
        (machine.machine.root / "proc").mkdir(exist_ok=True)
        (machine.machine.root / "proc" / name).write_bytes(first)
    machine.show_pods(pod(JOB), applications=[NGINX])
    machine.measure()
    machine.measure()
    machine.meter.close()
