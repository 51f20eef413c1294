"""The share of the time in which the threads of pods wait for a CPU, from the kernel's counters of each thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.koordlet.observe.interference.cpu_waits import THREADS, THREADS_OF_POD, CPUWaits
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import MalformedFileError
from koordinator.node.scheduling_delay import read_scheduling_delay
from tests.koordlet.observe.measured_machine import pod
from tests.node.machine import FakeMachine

SECOND = 1_000_000_000


class Threads:
    """Of pods with one container each, on version 1 of cgroups."""

    def __init__(self, root: Path) -> None:
        self.machine = FakeMachine(root)
        reader = CgroupReader(self.machine.layout(CgroupVersion.V1), 4096)
        self.waits = CPUWaits(self.machine.host, reader)
        self.now = 0.0

    def show(self, pod_: str, **delays: tuple[int, int]) -> None:
        """Threads ``t7=(ran, waited)``."""
        numbers = [name.removeprefix("t") for name in delays]
        self.machine.write(f"/sys/fs/cgroup/cpu/{pod_}/c/tasks", "".join(f"{each}\n" for each in numbers))
        for number, (ran, waited) in zip(numbers, delays.values(), strict=True):
            self.machine.write(f"/proc/{number}/schedstat", f"{ran} {waited} 5\n")

    def measure(self, *pods: NodePod) -> dict[str, float]:
        self.now += 10.0
        return self.waits.measure(pods, self.now)


@pytest.fixture
def threads(tmp_path: Path) -> Threads:
    return Threads(tmp_path)


def test_the_share_is_that_of_all_threads_since_the_last_round(threads: Threads) -> None:
    threads.show("a", t1=(5 * SECOND, SECOND), t2=(0, 0))
    assert threads.measure(pod("a")) == {}
    threads.show("a", t1=(6 * SECOND, 2 * SECOND), t2=(2 * SECOND, 0))
    assert threads.measure(pod("a")) == {"a": 25.0}


def test_threads_that_are_new_or_gone_do_not_count(threads: Threads) -> None:
    threads.show("a", t1=(0, 0), t2=(0, 0))
    threads.measure(pod("a"))
    threads.show("a", t1=(SECOND, SECOND), t3=(0, 9 * SECOND))
    assert threads.measure(pod("a")) == {"a": 50.0}


def test_a_thread_whose_number_another_one_has_got_waits_for_nothing(threads: Threads) -> None:
    threads.show("a", t1=(8 * SECOND, 8 * SECOND), t2=(0, 0))
    threads.measure(pod("a"))
    threads.show("a", t1=(0, 0), t2=(SECOND, 0))
    assert threads.measure(pod("a")) == {"a": 0.0}


def test_a_pod_that_hardly_wants_to_run_says_nothing(threads: Threads) -> None:
    threads.show("a", t1=(0, 0))
    threads.measure(pod("a"))
    threads.show("a", t1=(1000, 9000))
    assert threads.measure(pod("a")) == {}


def test_a_pod_that_is_gone_costs_the_others_nothing(threads: Threads) -> None:
    threads.show("a", t1=(0, 0))
    threads.measure(pod("gone"), pod("a"))
    threads.show("a", t1=(SECOND, 0))
    assert threads.measure(pod("gone"), pod("a")) == {"a": 0.0}


def test_so_many_threads_of_a_pod_are_looked_at_and_no_more(threads: Threads) -> None:
    first = {f"t{number}": (0, 0) for number in range(1, 100)}
    threads.show("a", **first)
    threads.measure(pod("a"))
    # Those with higher numbers than the ones that are looked at have waited all the time.
    later = {name: (SECOND, 0 if number < THREADS_OF_POD else SECOND) for number, name in enumerate(first)}
    threads.show("a", **later)
    assert threads.measure(pod("a")) == {"a": 0.0}


def test_many_pods_share_what_is_looked_at(threads: Threads) -> None:
    count = THREADS // 2
    pods = [pod(f"p{number}") for number in range(count)]
    for number in range(count):
        threads.show(f"p{number}", **{f"t{number * 4 + thread}": (0, 0) for thread in range(1, 5)})
    threads.measure(*pods)
    for number in range(count):
        # The third and the fourth thread of each pod are not looked at.
        delays = {f"t{number * 4 + thread}": (SECOND, SECOND if thread > 2 else 0) for thread in range(1, 5)}
        threads.show(f"p{number}", **delays)
    assert set(threads.measure(*pods).values()) == {0.0}


@pytest.mark.parametrize("content", ["", "1 2\n", "1 2 x\n", "-1 2 3\n"])
def test_counters_that_are_none_are_named(threads: Threads, content: str) -> None:
    threads.machine.write("/proc/7/schedstat", content)
    with pytest.raises(MalformedFileError, match="7/schedstat"):
        read_scheduling_delay(threads.machine.host, 7)
