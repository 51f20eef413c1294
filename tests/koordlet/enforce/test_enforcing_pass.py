"""The pass of each second: who is due, and that nobody's failure costs another its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import cast

import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import LoopSupervisor
from koordinator.koordlet.enforce.decision_report import DecisionReport
from koordinator.koordlet.enforce.enforcing_pass import EnforcingPass
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks.reconciler import Reconciler
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot, Strategy
from koordinator.kube.events import EventBroadcaster, EventRecorder
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.kernel_files import CPU_QUOTA, Target
from tests.koordlet.enforce.executor.fake_kernel import FakeKernel

QUOTA = Target(CPU_QUOTA, "kubepods/pod1")


class CountedHooks:
    """Which desire nothing."""

    def __init__(self) -> None:
        self.submitted = 0
        self.applied = 0

    def submit(self) -> Iterator[None]:
        self.submitted += 1
        yield

    def after_apply(self) -> None:
        self.applied += 1


class Bench:
    """A pass over strategies of a test, and a kernel with one quota."""

    def __init__(self, *strategies: Strategy, hook_interval: float = 10.0) -> None:
        self.clock = ManualClock()
        self.kernel = FakeKernel(CgroupVersion.V2)
        self.kernel.add(QUOTA, -1)
        self.hooks = CountedHooks()
        self.snapshots: list[bool] = []
        events = EventRecorder(cast("EventBroadcaster", None), "test")
        self.enforcing = EnforcingPass(
            strategies,
            cast("Reconciler", self.hooks),
            hook_interval,
            self.take_snapshot,
            self.kernel.executor(self.clock),
            DecisionReport("node-1", events),
            LoopSupervisor(clock=self.clock, random=Random(1)).metrics,
            self.clock,
        )

    def take_snapshot(self, with_best_effort: bool) -> Snapshot:
        self.snapshots.append(with_best_effort)
        return Snapshot()

    def run_once(self) -> None:
        for _ in self.enforcing.steps():
            pass

    def wake(self) -> None:
        """And what follows at once."""
        self.enforcing.wake()
        for _ in self.enforcing.woken_steps() if self.enforcing.is_woken.is_set() else ():
            pass

    def run(self, seconds: int) -> None:
        """That many passes, each a little more than a second after the last one."""
        for _ in range(seconds):
            self.run_once()
            asyncio.run(self.clock.advance(1.003))


def counting(calls: list[str], name: str, interval: float, *, reads_best_effort: bool = False) -> Strategy:
    def decide(_: Snapshot) -> Decision:
        calls.append(name)
        return Decision((), "counted")

    return Strategy(name, interval, decide, reads_best_effort=reads_best_effort)


def test_each_strategy_decides_at_its_interval() -> None:
    calls: list[str] = []
    Bench(counting(calls, "fast", 1.0), counting(calls, "slow", 5.0), counting(calls, "off", 0.0)).run(10)
    assert [calls.count(name) for name in ("fast", "slow", "off")] == [10, 2, 0]


def test_all_that_are_due_decide_on_one_snapshot() -> None:
    calls: list[str] = []
    bench = Bench(counting(calls, "a", 1.0), counting(calls, "b", 2.0, reads_best_effort=True))
    bench.run(2)
    assert bench.snapshots == [True, False]


def test_an_interval_below_a_second_is_kept() -> None:
    assert Bench(counting([], "often", 0.25)).enforcing.interval == 0.25


@pytest.mark.parametrize("error", [KoordinatorError("the node"), ZeroDivisionError("the program")])
def test_who_fails_keeps_no_other_from_its_turn_and_comes_back(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken, calls = [True], list[str]()

    def decide(_: Snapshot) -> Decision:
        calls.append("broken")
        if is_broken:
            raise error
        return Decision((DesiredSetting("broken", QUOTA, 50_000, "a test"),), "works")

    bench = Bench(Strategy("broken", 1.0, decide), counting(calls, "works", 1.0))
    bench.run(8)
    # After pauses that double.
    assert (calls.count("broken"), calls.count("works"), bench.hooks.submitted) == (3, 8, 1)
    assert f"broken: {error}" in caplog.text
    is_broken.clear()
    bench.run(8)
    assert bench.kernel.value(QUOTA) == 50_000


def hooks_after(seconds: float, act: Callable[[Bench], None]) -> int:
    """How often the hooks were called for what the test does so many seconds after their last call."""
    bench = Bench()
    bench.run_once()
    asyncio.run(bench.clock.advance(seconds))
    before = bench.hooks.submitted
    act(bench)
    assert bench.hooks.applied == bench.hooks.submitted
    return bench.hooks.submitted - before


def test_a_change_calls_the_hooks_at_once() -> None:
    assert hooks_after(5.0, Bench.wake) == 1


def test_changes_within_a_second_call_them_once_more_with_the_next_pass() -> None:
    def crash_loop(bench: Bench) -> None:
        for _ in range(20):
            bench.wake()
        bench.run_once()

    assert hooks_after(0.5, crash_loop) == 1


def test_hooks_without_an_interval_are_called_for_changes_alone() -> None:
    bench = Bench(hook_interval=0.0)
    bench.run(30)
    assert bench.hooks.submitted == 1
    bench.wake()
    assert bench.hooks.submitted == 2


def test_a_change_while_the_hooks_are_called_calls_them_again_with_the_next_pass() -> None:
    bench = Bench()
    bench.run_once()
    asyncio.run(bench.clock.advance(20.0))
    for _ in bench.enforcing.steps():
        bench.enforcing.wake()
    assert (bench.hooks.submitted, bench.enforcing.is_woken.is_set()) == (2, False)
    bench.run_once()
    assert bench.hooks.submitted == 3


def test_what_a_pass_has_left_is_written_when_others_have_had_their_turn() -> None:
    others = [Target(CPU_QUOTA, f"kubepods/pod{number}") for number in range(2, 6)]

    def decide(_: Snapshot) -> Decision:
        return Decision(tuple(DesiredSetting("many", each, 50_000, "a test") for each in (QUOTA, *others)), "many")

    bench = Bench(Strategy("many", 10.0, decide))
    for each in others:
        bench.kernel.add(each, -1)
    bench.kernel.before_write = lambda _: asyncio.run(bench.clock.advance(0.06))
    written = [sum(bench.kernel.value(each) == 50_000 for each in (QUOTA, *others)) for _ in bench.enforcing.steps()]
    assert sorted({2, 4} & set(written)) == [2, 4], "others have their turn in between"
    assert (len(bench.snapshots), bench.hooks.submitted) == (1, 1)
    assert {bench.kernel.value(each) for each in (QUOTA, *others)} == {50_000}
