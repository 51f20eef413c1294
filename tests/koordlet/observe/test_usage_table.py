"""The rows of the usage table: first readings, counters that begin anew, outages, and what is left for the system."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.host_application import CgroupPath, HostApplicationSpec
from koordinator.api.pod import Pod
from koordinator.koordlet.observe.usage_table import (
    BestEffortRow,
    CgroupRow,
    NodeRow,
    UsageTable,
)
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cgroup_meter import CPUCounters, MemoryUsage
from koordinator.node.cpu_time import CPUTimes
from koordinator.node.cpu_topology import CPUTopology, LogicalCPU
from koordinator.node.memory import MachineMemory, NUMANodeMemory
from tests.koordlet.observe.measured_machine import named, pod

SECOND = 1_000_000_000
LIFETIME = 20.0
TWO_NUMA_NODES = CPUTopology((LogicalCPU(0, 0, 0, 0), LogicalCPU(0, 0, 1, 1), LogicalCPU(1, 1, 2, 2)))
MEMORY = MachineMemory(total=100, free=20, available=60)
LAYOUT = CgroupLayout("/cg", CgroupVersion.V2, CgroupDriver.SYSTEMD)
NGINX = HostApplicationSpec(name="nginx", priority="koord-prod", qos="LS")


def row(*readings: tuple[float, int, int, int]) -> CgroupRow:
    """After readings, each at a second with nanoseconds of CPU, periods and throttled periods."""
    made = CgroupRow("a")
    for at, *counters in readings:
        made.read(CPUCounters(*counters), at, LIFETIME)
    return made


def test_a_rate_needs_two_readings() -> None:
    assert row((1, SECOND, 5, 5)).cpu_at < 0
    twice = row((1, SECOND, 0, 0), (3, 2 * SECOND, 10, 3))
    assert (twice.cpu, twice.cpu_at, twice.throttled, twice.throttled_at) == (0.5, 3, 0.3, 3)


@pytest.mark.parametrize(
    "second",
    [(3.0, SECOND // 2), (1.0, 2 * SECOND), (0.5, 2 * SECOND), (21.5, 2 * SECOND)],
    ids=["began anew", "same time", "clock went back", "too long ago"],
)
def test_readings_that_cannot_be_compared_begin_anew(second: tuple[float, int]) -> None:
    at, nanoseconds = second
    assert row((1.0, SECOND, 0, 0), (at, nanoseconds, 0, 0)).cpu_at < 0
    third = row((1.0, SECOND, 0, 0), (at, nanoseconds, 0, 0), (at + 1, nanoseconds + SECOND, 0, 0))
    assert (third.cpu, third.cpu_at) == (1.0, at + 1)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.floats(-5, 30)), max_size=30))
def test_no_rate_is_negative_or_made_of_no_time(readings: list[tuple[int, float]]) -> None:
    made, at = row(), 0.0
    for value, step in readings:
        at += step
        made.read(CPUCounters(value, value, value), at, LIFETIME)
        assert made.cpu >= 0
        assert 0 <= made.throttled <= 1


def test_where_no_period_has_passed_nothing_was_throttled() -> None:
    assert row((1, 0, 20, 8), (2, 0, 20, 8)).throttled == 0.0


def test_periods_that_begin_anew_cost_the_share_of_throttled_ones_alone() -> None:
    made = row((1, 0, 20, 8), (2, SECOND, 4, 4))
    assert (made.cpu, made.throttled_at < 0) == (1.0, True)


def node(*readings: tuple[float, int], memory: MachineMemory = MEMORY) -> NodeRow:
    """After readings of ticks, each at a second."""
    made = NodeRow()
    for at, ticks in readings:
        made.read(CPUTimes(ticks, {}), memory, at, LIFETIME)
    return made


def test_the_node_in_its_first_round_and_after() -> None:
    assert node((1, 1000)).at < 0
    twice = node((1, 1000), (3, 1300))
    assert (twice.cpu, twice.memory.usage, twice.at) == (1.5, 40, 3)


def numa(*readings: dict[int, int], memory: tuple[int, ...] = ()) -> dict[int, float | None]:
    """Cores by NUMA node, after readings of ticks by CPU, one a second."""
    made = NodeRow()
    made.read_numa_memory([NUMANodeMemory(number, 100, used, {}) for number, used in enumerate(memory)], 1)
    for second, by_cpu in enumerate(readings):
        made.read(CPUTimes(second, by_cpu), MEMORY, second, LIFETIME, TWO_NUMA_NODES)
    return {number: each.cpu for number, each in made.numa.items()}


def test_numa_nodes_by_their_cpus() -> None:
    """The third CPU has begun anew: nothing is known of the second NUMA node."""
    assert numa({0: 0, 1: 0, 2: 50}, {0: 30, 1: 20, 2: 40}, memory=(7, 9)) == {0: 0.5, 1: None}


def test_a_cpu_that_was_offline_counts_from_its_second_reading_on() -> None:
    assert numa({0: 0, 1: 0}, {0: 30, 1: 0, 2: 500}, {0: 60, 1: 0, 2: 510}) == {0: 0.3, 1: pytest.approx(0.1)}


def test_a_numa_node_with_memory_alone_has_a_usage() -> None:
    assert numa({0: 0}, {0: 9}, memory=(1, 2, 3)) == {0: 0.09, 1: None, 2: 0.0}


def table(made: NodeRow, at: float, *pods: tuple[float, int]) -> UsageTable:
    """With a round at a second in which pods of so many cores and bytes were measured."""
    found = UsageTable(1.0, 5.0)
    found.node, found.at = made, at
    found.set_pods([pod(str(number)) for number in range(len(pods))])
    for each, (cores, size) in zip(found.pods.values(), pods, strict=True):
        each.cpu, each.cpu_at, each.memory, each.memory_at = cores, at, MemoryUsage(size, size), at - 4
    return found


def test_what_is_left_for_the_system() -> None:
    found = table(node((0, 0), (1, 400)), 1, (1.5, 10), (0.5, 5))
    found.set_host_applications([NGINX], LAYOUT)
    application = found.host_applications["nginx"]
    application.cpu, application.cpu_at, application.memory, application.memory_at = 1.0, 1, MemoryUsage(5, 9), 1
    assert named(found.system_samples()) == {"sys_cpu_usage": 1.0, "sys_memory_usage": 20.0}


def test_the_system_never_uses_less_than_nothing() -> None:
    samples = table(node((0, 0), (1, 100)), 1, (2.0, 50)).system_samples()
    assert named(samples) == {"sys_cpu_usage": 0.0, "sys_memory_usage": 0.0}


def test_what_was_read_too_long_ago_is_no_part_of_the_usage() -> None:
    found = table(node((0, 0), (1, 100)), 1, (0.5, 10))
    found.pods["0"].cpu_at, found.pods["0"].memory_at = 0.5, 1 - 2 * 5 - 0.1
    assert named(found.system_samples()) == {"sys_cpu_usage": 1.0, "sys_memory_usage": 40.0}


def test_the_pool_of_huge_pages_is_the_systems_and_nobodys_usage() -> None:
    """koord-manager subtracts what the system uses from the capacity, which contains the pool."""
    made = node((0, 0), (1, 1), memory=MachineMemory(total=64, free=12, available=12, huge_pages=48))
    made.read_numa_memory([NUMANodeMemory(0, 32, 3, {2048: 24}), NUMANodeMemory(8, 32, 1, {2048: 24})], 1)
    found = table(made, 1, (0.0, 2))
    found.pods["0"].numa_memory = {8: 1}
    samples = named(found.node_samples() | found.system_samples())
    assert (samples["node_memory_usage"], samples["sys_memory_usage"]) == (4, 50)
    assert (samples["node_numa_memory_usage 8"], samples["sys_numa_memory_usage 8"]) == (1, 24 * 2048 * 1024)


def test_the_systems_part_by_numa_node() -> None:
    made = node((0, 0), (1, 400))
    made.read_numa_memory([NUMANodeMemory(0, 100, 60, {}), NUMANodeMemory(1, 100, 40, {})], 1)
    made.numa[0].cpu, made.numa[1].cpu = 3.0, 1.0
    found = table(made, 1, (3.0, 5))
    found.pods["0"].numa_memory = {0: 70, 1: 10}
    samples = named(found.system_samples())
    assert (samples["sys_numa_cpu_usage 0"], samples["sys_numa_cpu_usage 1"]) == (0.75, 0.25)
    assert (samples["sys_numa_memory_usage 0"], samples["sys_numa_memory_usage 1"]) == (0, 30)


def test_the_one_numa_node_uses_what_the_machine_uses() -> None:
    made = node((0, 0), (1, 100), memory=MachineMemory(100, 20, 60, huge_pages=5, reclaimable=35))
    made.read_only_numa_node(3)
    samples = named((found := table(made, 1, (0.5, 10))).node_samples() | found.system_samples())
    assert (samples["node_numa_cpu_usage 3"], samples["node_numa_memory_usage 3"]) == (1.0, 40)
    assert (samples["sys_numa_cpu_usage 3"], samples["sys_numa_memory_usage 3"]) == (0.5, 35)


def test_rows_outlive_changes_of_pods_and_not_of_their_cgroups() -> None:
    found = UsageTable(1.0, 5.0)
    found.set_pods([pod("a"), pod("b")])
    a, container = found.pods["a"], found.pods["a"].containers["containerd://a"]
    found.set_pods([pod("a")])
    assert (found.pods["a"], found.pods["a"].containers["containerd://a"]) == (a, container)
    assert found.cgroups == (container, a)
    found.set_pods([NodePod(Pod(), "a", "a", (PodContainer("main", "containerd://a", "a/crio-a"),))])
    assert found.pods["a"] is a
    assert found.pods["a"].containers["containerd://a"] is not container


@pytest.mark.parametrize(
    ("readings", "usage"),
    [([(1, 5)], 0), ([(1, 0), (3, 3 * SECOND + 999_999)], 1500), ([(1, 5 * SECOND), (2, SECOND)], 0)],
    ids=["first", "whole milli-CPU", "began anew"],
)
def test_best_effort_pods_use_0_where_there_is_nothing_to_compare_with(
    readings: list[tuple[float, int]], usage: int
) -> None:
    """So that their limit is known at once."""
    made = BestEffortRow()
    for at, nanoseconds in readings:
        made.read(nanoseconds, at, LIFETIME)
    assert made.usage == usage


def batch_pod(requests: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> NodePod:
    container = {"name": "c", "resources": {"requests": requests or {}}}
    document = {"metadata": {"labels": labels or {}}, "spec": {"containers": [container], **spec}}
    return NodePod(convert(document, Pod), f"u{id(container)}", "c", ())


def test_requests_of_pods_of_the_class_be_only() -> None:
    batch, found = {"kubernetes.io/batch-cpu": "500"}, UsageTable(1.0, 5.0)
    found.set_pods(
        [
            batch_pod(batch, {"koordinator.sh/qosClass": "BE"}),
            batch_pod(batch, {"koordinator.sh/qosClass": "LS"}),
            batch_pod(batch),
            batch_pod({}, {"koordinator.sh/qosClass": "BE"}),
        ]
    )
    assert found.best_effort.request == 500


def test_sidecars_count_and_other_init_containers_do_not() -> None:
    resources = {"requests": {"kubernetes.io/batch-cpu": "200"}}
    init = [
        {"name": "i", "resources": resources},
        {"name": "s", "restartPolicy": "Always", "resources": resources},
        {"name": "n", "restartPolicy": "Always", "resources": {"requests": {"kubernetes.io/batch-cpu": "-100"}}},
    ]
    pod = batch_pod({"kubernetes.io/batch-cpu": "1k"}, initContainers=init)
    assert pod.containers_request == {"kubernetes.io/batch-cpu": 1200}


def test_of_several_host_applications_with_one_name_the_first_counts() -> None:
    found = UsageTable(1.0, 5.0)
    found.set_host_applications([NGINX, HostApplicationSpec(name="nginx", qos="BE")], LAYOUT)
    assert [each.cgroup for each in found.host_applications.values()] == ["host-latency-sensitive/nginx"]


@pytest.mark.parametrize(
    ("spec", "folder"),
    [
        (HostApplicationSpec(name="a", qos="LSE"), "host-latency-sensitive/a"),
        (HostApplicationSpec(name="a", qos="LSR"), "host-latency-sensitive/a"),
        (HostApplicationSpec(name="a", qos="BE"), "host-best-effort/a"),
        (HostApplicationSpec(name="a", qos="SYSTEM"), "a"),
        (HostApplicationSpec(name="a"), "a"),
        (HostApplicationSpec(cgroup_path=CgroupPath("CgroupRoot", "p/", "/q")), "p/q"),
        (HostApplicationSpec(cgroup_path=CgroupPath("Kubepods", "p", "q")), "kubepods.slice/p/q"),
        (
            HostApplicationSpec(cgroup_path=CgroupPath("KubepodsBurstable", "", "q")),
            "kubepods.slice/kubepods-burstable.slice/q",
        ),
        (
            HostApplicationSpec(cgroup_path=CgroupPath("KubepodsBesteffort", "p")),
            "kubepods.slice/kubepods-besteffort.slice/p",
        ),
        (HostApplicationSpec(cgroup_path=CgroupPath("", "../../etc", "x")), "etc/x"),
    ],
)
def test_folders_of_host_applications(spec: HostApplicationSpec, folder: str) -> None:
    assert LAYOUT.host_application(spec) == folder
