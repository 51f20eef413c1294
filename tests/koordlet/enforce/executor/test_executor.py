"""The executor against a kernel that refuses, lies, loses files and sees the agent killed."""

from __future__ import annotations

import asyncio
import errno
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Outcome, Priority
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.kernel_files import (
    CPU_BURST,
    CPU_QUOTA,
    CPU_SHARES,
    CPUSET,
    KUBELET_FILES,
    MEMORY_HIGH,
    MEMORY_LIMIT,
    MEMORY_LOW,
    NET_CLASS,
    RESCTRL_GROUP,
    RESCTRL_TASKS,
    UNLIMITED,
    KernelFile,
    Target,
    Value,
)
from koordinator.node.writer_thread import UnfinishedWriteError, WriterThread
from tests.examples import examples
from tests.koordlet.enforce.executor.fake_kernel import PAGE, FakeKernel, Killed

POD, CONTAINER = "kubepods/pod1", "kubepods/pod1/c1"
QUOTA = Target(CPU_QUOTA, POD)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kernel() -> FakeKernel:
    kernel = FakeKernel()
    kernel.add(QUOTA, -1)
    return kernel


def pass_seconds(clock: ManualClock, seconds: float) -> None:
    asyncio.run(clock.advance(seconds))


def want(executor: Executor, *values: tuple[Target, Value], owner: str = "a") -> None:
    executor.submit(owner, [DesiredSetting(owner, target, value, "a reason") for target, value in values])


def outcome(executor: Executor, target: Target) -> Outcome:
    explanation = executor.explain(target)
    assert explanation is not None
    return explanation.outcome


def test_what_is_written_already_is_not_read_again_for_a_minute(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    want(executor, (QUOTA, 50_000))
    executor.apply()
    kernel.contents[kernel.codec.path(QUOTA) or ""] = "-1\n"
    pass_seconds(clock, 59)
    assert executor.apply().written == ()
    pass_seconds(clock, 1)
    assert len(executor.apply().written) == 1
    assert kernel.value(QUOTA) == 50_000


def test_another_reason_for_the_same_value_is_told_and_nothing_is_read_for_it(
    kernel: FakeKernel, clock: ManualClock
) -> None:
    """As of a strategy that says how much it has measured."""
    executor = kernel.executor(clock)
    want(executor, (QUOTA, 50_000))
    executor.apply()
    kernel.contents[kernel.codec.path(QUOTA) or ""] = "-1\n"
    executor.submit("a", [DesiredSetting("a", QUOTA, 50_000, "another reason")])
    assert executor.apply().written == ()
    explanation = executor.explain(QUOTA)
    assert explanation is not None
    assert (explanation.setting.winner.reason, explanation.outcome) == ("another reason", Outcome.WRITTEN)


def test_the_same_value_with_another_priority_is_decided_anew(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    want(executor, (QUOTA, 50_000))
    want(executor, (QUOTA, 70_000), owner="b")
    executor.apply()
    executor.submit("b", [DesiredSetting("b", QUOTA, 70_000, "a reason", Priority.POD)])
    executor.apply()
    assert kernel.value(QUOTA) == 70_000


def test_it_is_read_again_at_once_when_any_cgroup_may_have_been_written(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    want(executor, (QUOTA, 50_000))
    executor.apply()
    kernel.contents[kernel.codec.path(QUOTA) or ""] = "-1\n"
    executor.look_again()
    executor.apply()
    assert kernel.value(QUOTA) == 50_000


def test_it_is_read_again_after_a_minute_though_files_of_its_kind_change_all_the_time(
    kernel: FakeKernel, clock: ManualClock
) -> None:
    other = Target(CPU_QUOTA, "kubepods/pod2")
    kernel.add(other, -1)
    executor = kernel.executor(clock)
    for second in range(61):
        want(executor, (QUOTA, 50_000), (other, 50_000 + second))
        executor.apply()
        kernel.contents[kernel.codec.path(QUOTA) or ""] = "-1\n"
        pass_seconds(clock, 1)
    assert [content for path, content in kernel.writes if path == kernel.codec.path(QUOTA)] == ["50000", "50000"]


def test_where_nothing_can_have_changed_nothing_is_read(
    kernel: FakeKernel, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(CPU_SHARES, POD)
    kernel.add(target, 1024)
    executor = kernel.executor(clock)
    read: list[str] = []
    present = kernel.read

    def reading(path: str) -> str:
        read.append(path)
        return present(path)

    monkeypatch.setattr(kernel, "read", reading)
    looks: list[int] = []
    for value in (512, 512, 512, 256, 256):
        want(executor, (target, value))
        executor.apply()
        looks.append(len(read))
    # Before it is written, and afterwards.
    assert looks == [2, 2, 2, 4, 4]
    pass_seconds(clock, 60)
    executor.apply()
    assert len(read) == 5


def test_a_change_of_one_file_is_no_look_at_files_that_do_not_depend_on_it(
    kernel: FakeKernel, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, burst = Target(MEMORY_LOW, POD), Target(CPU_BURST, POD)
    kernel.add(low, 0)
    executor = kernel.executor(clock)
    want(executor, (QUOTA, 50_000), (burst, 0), (low, 4096))
    executor.apply()
    read: list[str] = []
    present = kernel.read

    def reading(path: str) -> str:
        read.append(path.rpartition("/")[2])
        return present(path)

    monkeypatch.setattr(kernel, "read", reading)
    want(executor, (QUOTA, 60_000), (burst, 0), (low, 4096))
    executor.apply()
    # Nor at what the kernel does not have, until it is time to look for it again.
    assert set(read) == {"cpu.cfs_quota_us"}
    pass_seconds(clock, 60)
    executor.apply()
    assert set(read) == {"cpu.cfs_quota_us", "cpu.cfs_burst_us", "memory.low"}


def test_a_value_that_is_there_is_not_written(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    want(executor, (QUOTA, -1))
    executor.apply()
    assert kernel.writes == []
    assert outcome(executor, QUOTA) is Outcome.THERE_ALREADY


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EPERM, errno.EBUSY])
def test_a_refused_write_is_tried_again_after_pauses_that_double(
    kernel: FakeKernel, clock: ManualClock, code: int
) -> None:
    executor = kernel.executor(clock)
    path = kernel.codec.path(QUOTA) or ""
    kernel.refusals[path] = code
    want(executor, (QUOTA, 50_000))
    attempts = []
    kernel.before_write = lambda _: attempts.append(clock.monotonic())
    start = clock.monotonic()
    for _ in range(10):
        executor.apply()
        pass_seconds(clock, 1)
    assert [at - start for at in attempts] == [0, 1, 3, 7]
    explanation = executor.explain(QUOTA)
    assert explanation is not None
    assert explanation.outcome is Outcome.REFUSED
    assert errno.errorcode[code] in explanation.detail
    kernel.refusals.clear()
    pass_seconds(clock, 60)
    executor.apply()
    assert kernel.value(QUOTA) == 50_000


def test_a_new_value_is_tried_at_once_though_the_last_one_was_refused(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    path = kernel.codec.path(QUOTA) or ""
    kernel.refusals[path] = errno.EINVAL
    want(executor, (QUOTA, 50_000))
    executor.apply()
    kernel.refusals.clear()
    want(executor, (QUOTA, 60_000))
    executor.apply()
    assert kernel.value(QUOTA) == 60_000


def test_a_file_that_shows_something_else_than_was_written_is_a_failure(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    kernel.liars.add(kernel.codec.path(QUOTA) or "")
    want(executor, (QUOTA, 50_000))
    (failed,) = executor.apply().failed
    assert failed.outcome is Outcome.NOT_HELD
    assert "-1" in failed.detail


def test_a_cgroup_that_goes_between_the_decision_and_the_write_is_no_failure(
    kernel: FakeKernel, clock: ManualClock
) -> None:
    executor = kernel.executor(clock)
    kernel.before_write = lambda _: kernel.remove(POD)
    want(executor, (QUOTA, 50_000))
    assert executor.apply().failed == ()
    assert outcome(executor, QUOTA) is Outcome.VANISHED


def test_a_cgroup_that_comes_later_is_written_when_it_comes(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    later = Target(CPU_QUOTA, "kubepods/pod2")
    want(executor, (later, 50_000))
    executor.apply()
    kernel.add(later, -1)
    executor.apply()
    assert kernel.value(later) == 50_000


def test_a_file_that_the_kernel_does_not_have_is_unsupported(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    burst = Target(CPU_BURST, POD)
    want(executor, (burst, 1000))
    assert executor.apply().failed == ()
    assert outcome(executor, burst) is Outcome.UNSUPPORTED


def test_a_file_that_this_version_does_not_have_is_unsupported(clock: ManualClock) -> None:
    kernel = FakeKernel(CgroupVersion.V2)
    executor = kernel.executor(clock)
    target = Target(NET_CLASS, POD)
    want(executor, (target, 1))
    executor.apply()
    assert outcome(executor, target) is Outcome.UNSUPPORTED


def test_an_invalid_value_is_reported_and_keeps_nothing_else_back(kernel: FakeKernel, clock: ManualClock) -> None:
    executor = kernel.executor(clock)
    burst = Target(CPU_BURST, POD)
    want(executor, (burst, -5), (QUOTA, 50_000))
    executor.apply()
    (problem,) = executor.invalid_settings.values()
    assert "-5 is not in [0, 100000000]" in problem
    assert kernel.value(QUOTA) == 50_000


def test_only_observing_writes_nothing_and_says_what_it_would(
    kernel: FakeKernel, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    executor = kernel.executor(clock, observe_only=True)
    want(executor, (QUOTA, 50_000))
    executor.apply()
    executor.apply()
    assert kernel.writes == []
    assert caplog.text.count("would get 50000 (a: a reason)") == 1
    assert outcome(executor, QUOTA) is Outcome.ONLY_OBSERVED


def test_a_round_writes_no_more_than_it_may_and_the_next_goes_on(clock: ManualClock) -> None:
    kernel = FakeKernel()
    targets = [Target(CPU_QUOTA, f"kubepods/pod{number}") for number in range(5)]
    for target in targets:
        kernel.add(target, -1)
    executor = kernel.executor(clock, writes_at_once=2)
    want(executor, *((target, 50_000) for target in targets))
    applied = [executor.apply() for _ in range(3)]
    assert [(len(each.written), each.may_go_on) for each in applied] == [(2, True), (2, True), (1, False)]
    assert {kernel.value(target) for target in targets} == {50_000}


def test_a_parent_that_is_refused_keeps_its_child_as_it_was(clock: ManualClock) -> None:
    kernel = FakeKernel()
    parent, child = Target(CPUSET, POD), Target(CPUSET, CONTAINER)
    for target in (parent, child):
        kernel.add(target, frozenset({0}))
    kernel.refusals[kernel.codec.path(parent) or ""] = errno.EPERM
    executor = kernel.executor(clock)
    want(executor, (parent, frozenset({0, 1})), (child, frozenset({0, 1})))
    executor.apply()
    assert kernel.violations == []
    explanation = executor.explain(child)
    assert explanation is not None
    assert explanation.outcome is Outcome.NOT_WRITTEN_YET
    assert str(parent) in explanation.detail


def test_tasks_are_added_one_by_one_and_one_that_has_ended_keeps_no_other_out(clock: ManualClock) -> None:
    kernel = FakeKernel()
    tasks = Target(RESCTRL_TASKS, "LS")
    kernel.add(tasks, frozenset({1}))
    executor = kernel.executor(clock)
    want(executor, (tasks, frozenset({1, 2, 3})))
    executor.apply()
    assert [content for _, content in kernel.writes] == ["2", "3"]


def group_of_resctrl(kernel: FakeKernel) -> Target:
    """A group that is there, with a task in it, and that is to be removed."""
    kernel.add(Target(RESCTRL_TASKS, "koordlet-uid"), frozenset({1}))
    return Target(RESCTRL_GROUP, "koordlet-uid")


def test_a_group_of_resctrl_is_removed_once(clock: ManualClock) -> None:
    kernel = FakeKernel()
    group = group_of_resctrl(kernel)
    executor = kernel.executor(clock)
    want(executor, (group, 0))
    first, second = executor.apply(), executor.apply()
    assert (len(first.written), len(second.written), kernel.exists(kernel.codec.folder(group))) == (1, 0, False)
    assert outcome(executor, group) is Outcome.WRITTEN


def test_a_group_that_is_not_there_needs_no_removal(clock: ManualClock) -> None:
    kernel = FakeKernel()
    executor = kernel.executor(clock)
    group = Target(RESCTRL_GROUP, "koordlet-uid")
    want(executor, (group, 0))
    assert executor.apply().written == ()
    assert outcome(executor, group) is Outcome.THERE_ALREADY


def test_a_removal_that_is_refused_is_tried_again(clock: ManualClock) -> None:
    kernel = FakeKernel()
    group = group_of_resctrl(kernel)
    kernel.refusals[kernel.codec.folder(group)] = errno.EBUSY
    executor = kernel.executor(clock)
    want(executor, (group, 0))
    executor.apply()
    assert outcome(executor, group) is Outcome.REFUSED
    kernel.refusals.clear()
    asyncio.run(clock.advance(2))
    executor.apply()
    assert not kernel.exists(kernel.codec.folder(group))


def test_observing_removes_no_group(clock: ManualClock) -> None:
    kernel = FakeKernel()
    group = group_of_resctrl(kernel)
    executor = kernel.executor(clock, observe_only=True)
    want(executor, (group, 0))
    executor.apply()
    assert kernel.exists(kernel.codec.folder(group))


@pytest.mark.parametrize(("limit", "shown"), [(10**9, 999_997_440), ((1 << 63) - 1, -1), (-1, -1)])
def test_a_memory_limit_is_held_in_whole_pages(kernel: FakeKernel, clock: ManualClock, limit: int, shown: int) -> None:
    target = Target(MEMORY_LIMIT, POD)
    kernel.add(target, 4096)
    executor = kernel.executor(clock)
    want(executor, (target, limit))
    executor.apply()
    assert outcome(executor, target) is Outcome.WRITTEN
    assert kernel.value(target) == shown


def test_version_2_writes_its_own_terms(clock: ManualClock) -> None:
    kernel = FakeKernel(CgroupVersion.V2)
    shares, high, low = Target(CPU_SHARES, POD), Target(MEMORY_HIGH, POD), Target(MEMORY_LOW, POD)
    for target, value in ((QUOTA, 50_000), (shares, 2), (high, 0), (low, 0)):
        kernel.add(target, value)
    executor = kernel.executor(clock)
    want(executor, (QUOTA, -1), (shares, 1024), (high, UNLIMITED), (low, 5000))
    executor.apply()
    assert {path.rpartition("/")[2]: content for path, content in kernel.writes} == {
        "cpu.max": "max",
        "cpu.weight": "39",
        "memory.high": str(UNLIMITED),
        "memory.low": "4096",
    }
    writes = len(kernel.writes)
    executor.apply()
    assert len(kernel.writes) == writes


def test_nobody_submits_what_another_desires(kernel: FakeKernel, clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="b"):
        kernel.executor(clock).submit("a", [DesiredSetting("b", QUOTA, 1000, "")])


FOLDERS = ["kubepods", POD, CONTAINER, "kubepods/pod1/c2", "kubepods/pod2"]
sets = st.frozensets(st.integers(0, 5), min_size=1)
rounds = st.lists(st.fixed_dictionaries(dict.fromkeys(FOLDERS, sets)), min_size=1, max_size=4)
faults = st.lists(st.sampled_from([None, *FOLDERS]), min_size=4, max_size=4)


@settings(max_examples=examples(25), deadline=None)
@given(rounds, faults, st.one_of(st.none(), st.integers(0, 6)))
def test_whatever_fails_and_whenever_the_agent_is_killed_no_child_is_wider_and_the_next_start_converges(
    wanted: list[dict[str, frozenset[int]]], broken: list[str | None], killed_after: int | None
) -> None:
    kernel, clock = FakeKernel(), ManualClock()
    everything = frozenset(range(6))
    for folder in FOLDERS:
        kernel.add(Target(CPUSET, folder), everything)
    executor = kernel.executor(clock)
    kernel.killed_after = killed_after
    for values, fault in zip(wanted, broken, strict=False):
        kernel.refusals = {kernel.codec.path(Target(CPUSET, fault)) or "": errno.EBUSY} if fault else {}
        want(executor, *((Target(CPUSET, folder), value) for folder, value in values.items()))
        try:
            executor.apply()
        except Killed:
            kernel.killed_after = None
            executor = kernel.executor(clock)
    assert kernel.violations == []
    kernel.refusals, kernel.killed_after = {}, None
    last = dict.fromkeys(FOLDERS, frozenset({0, 1}))
    again = kernel.executor(clock)
    want(again, *((Target(CPUSET, folder), value) for folder, value in last.items()))
    again.apply()
    assert {folder: kernel.value(Target(CPUSET, folder)) for folder in FOLDERS} == last


def test_a_set_that_is_its_parents_is_looked_at_again_when_the_parent_is_written(clock: ManualClock) -> None:
    """Version 2: the child has no CPUs of its own, and what it has of its parent is what is desired, at first."""
    kernel = FakeKernel(CgroupVersion.V2)
    parent, child = Target(CPUSET, POD), Target(CPUSET, CONTAINER)
    two, four = frozenset({0, 1}), frozenset({0, 1, 2, 3})
    kernel.add(parent, two)
    path = kernel.add(child, None)
    kernel.contents[f"{path}.effective"] = "0-1\n"
    executor = kernel.executor(clock)
    want(executor, (parent, two), (child, two))
    assert executor.apply().written == ()
    assert outcome(executor, child) is Outcome.THERE_ALREADY
    want(executor, (parent, four), (child, two))
    executor.apply()
    kernel.contents[f"{path}.effective"] = "0-3\n"
    executor.apply()
    assert kernel.value(child) == two


def test_no_set_of_cpus_is_emptied(clock: ManualClock) -> None:
    """The kernel does not take it of a cgroup with processes."""
    kernel = FakeKernel(CgroupVersion.V2)
    target = Target(CPUSET, POD)
    kernel.add(target, frozenset({0}))
    executor = kernel.executor(clock)
    want(executor, (target, frozenset()))
    assert executor.apply().written == ()
    assert list(executor.invalid_settings.values()) == [f"{target}: frozenset() is not a set of CPUs"]


def released(target: Target, value: int) -> DesiredSetting:
    return DesiredSetting("a", target, value, "it is off", Priority.RELEASE)


@pytest.mark.parametrize("file", sorted(KUBELET_FILES, key=str), ids=str)
def test_what_koordlet_has_not_changed_is_not_put_back(file: KernelFile) -> None:
    kernel, target = FakeKernel(), Target(file, "kubepods/podweb")
    kernel.add(target, 4096)
    executor = kernel.executor(ManualClock())
    executor.submit("a", [released(target, 8192)])
    executor.apply()
    assert (kernel.writes, executor.explain(target), kernel.marked) == ([], None, set())


@pytest.mark.parametrize("is_new", [False, True])
def test_what_koordlet_has_changed_is_put_back_once(is_new: bool) -> None:
    """By another process, too."""
    kernel, target, clock = FakeKernel(), Target(CPU_QUOTA, "kubepods/podweb"), ManualClock()
    path = kernel.add(target, 100_000)
    executor = kernel.executor(clock)
    executor.submit("a", [DesiredSetting("a", target, 50_000, "a policy")])
    executor.apply()
    assert (kernel.value(target), kernel.marked) == (50_000, {path})
    executor = kernel.executor(clock) if is_new else executor
    executor.submit("a", [released(target, 100_000)])
    assert [written.text for written in executor.apply().written] == ["100000"]
    assert kernel.marked == set()
    kernel.contents[path] = "70000\n"
    asyncio.run(clock.advance(100))
    executor.apply()
    assert kernel.value(target) == 70_000


def test_a_file_is_marked_before_it_is_changed() -> None:
    """An agent that is killed in between leaves nothing that nobody puts back."""
    kernel, target = FakeKernel(), Target(CPU_QUOTA, "kubepods/podweb")
    path = kernel.add(target, 100_000)
    kernel.killed_after = 0
    executor = kernel.executor(ManualClock())
    executor.submit("a", [DesiredSetting("a", target, 50_000, "a policy")])
    with pytest.raises(Killed):
        executor.apply()
    assert kernel.marked == {path}


def test_what_an_earlier_version_has_changed_and_is_still_wanted_is_put_back_later() -> None:
    kernel, target = FakeKernel(), Target(CPU_QUOTA, "kubepods/podweb")
    path = kernel.add(target, 50_000)
    executor = kernel.executor(ManualClock())
    executor.submit("a", [DesiredSetting("a", target, 50_000, "a policy")])
    executor.apply()
    assert kernel.marked == {path}
    executor.submit("a", [released(target, 100_000)])
    executor.apply()
    assert (kernel.value(target), kernel.marked) == (100_000, set())


def test_who_only_observes_marks_nothing() -> None:
    kernel, target = FakeKernel(), Target(CPU_QUOTA, "kubepods/podweb")
    kernel.add(target, 100_000)
    executor = kernel.executor(ManualClock(), observe_only=True)
    executor.submit("a", [DesiredSetting("a", target, 50_000, "a policy")])
    executor.apply()
    assert (kernel.writes, kernel.marked) == ([], set())


def test_what_the_kubelet_had_given_is_kept_by_the_mark_through_changes_of_koordlets_own_and_restarts() -> None:
    kernel, target, clock = FakeKernel(CgroupVersion.V2), Target(MEMORY_HIGH, POD), ManualClock()
    path = kernel.add(target, 81920)
    for value in (40960, 20480):
        executor = kernel.executor(clock)
        executor.submit("a", [DesiredSetting("a", target, value, "a policy")])
        executor.apply()
        executor.submit("a", [DesiredSetting("a", target, value - PAGE, "another")])
        executor.apply()
        assert (kernel.value(target), kernel.notes) == (value - PAGE, {path: "81920"})
    assert kernel.executor(clock).kept(target) == 81920


def test_what_the_kubelet_has_given_meanwhile_is_kept_instead() -> None:
    """It resizes a pod."""
    kernel, target, clock = FakeKernel(CgroupVersion.V2), Target(MEMORY_HIGH, POD), ManualClock()
    path = kernel.add(target, UNLIMITED)
    executor = kernel.executor(clock)
    executor.submit("a", [DesiredSetting("a", target, 40960, "a policy")])
    executor.apply()
    assert executor.kept(target) == UNLIMITED
    kernel.contents[path] = "81920\n"
    asyncio.run(clock.advance(100))
    executor.apply()
    assert (kernel.value(target), executor.kept(target)) == (40960, 81920)


def test_nothing_is_kept_of_a_file_that_has_the_value_already() -> None:
    kernel, target = FakeKernel(CgroupVersion.V2), Target(MEMORY_HIGH, POD)
    kernel.add(target, 40960)
    executor = kernel.executor(ManualClock())
    executor.submit("a", [DesiredSetting("a", target, 40960, "a policy")])
    executor.apply()
    assert (kernel.writes, kernel.marked, executor.kept(target)) == ([], set(), None)


def test_limits_that_the_runtime_keeps_twice_are_written_twice(clock: ManualClock) -> None:
    kernel = FakeKernel(CgroupVersion.V2)
    inner = f"{CONTAINER}/container"
    for folder in (POD, CONTAINER, inner):
        for file in (CPU_QUOTA, CPU_SHARES):
            kernel.add(Target(file, folder), 100_000 if file is CPU_QUOTA else 1024)
    executor = kernel.executor(clock)
    executor.set_inner_folders({CONTAINER: inner})
    want(executor, (Target(CPU_QUOTA, CONTAINER), 50_000), (Target(CPU_SHARES, CONTAINER), 512))
    executor.apply()
    assert kernel.value(Target(CPU_QUOTA, inner)) == 50_000
    assert kernel.value(Target(CPU_SHARES, CONTAINER)) != kernel.value(Target(CPU_SHARES, inner))


def test_a_write_that_takes_long_keeps_the_others_in_their_order_and_nobody_waiting(clock: ManualClock) -> None:
    kernel = FakeKernel()
    targets = [Target(CPU_QUOTA, POD), Target(CPU_QUOTA, CONTAINER)]
    for target in targets:
        kernel.add(target, 100_000)
    slow, ended = kernel.codec.path(targets[1]), threading.Event()

    def wait(path: str) -> None:
        if path == slow:
            ended.wait()

    kernel.before_write = wait
    executor = Executor(WriterThread(kernel, clock, seconds=0.01), kernel.codec, clock)
    want(executor, (targets[0], 50_000), (targets[1], 50_000))
    try:
        assert executor.apply().written == ()
        # The kernel takes no pod with less than its container has.
        assert [outcome(executor, target) for target in targets] == [Outcome.NOT_WRITTEN_YET] * 2
        assert executor.apply().written == ()
    finally:
        ended.set()
    end = time.monotonic() + 10
    while outcome(executor, targets[0]) is not Outcome.WRITTEN and time.monotonic() < end:
        executor.apply()
    assert [kernel.value(target) for target in targets] == [50_000] * 2
    assert kernel.violations == []


def test_what_an_apply_that_was_cut_short_has_not_finished_is_due_as_before(clock: ManualClock) -> None:
    kernel = FakeKernel()
    targets = [Target(CPU_QUOTA, f"kubepods/pod{number}") for number in range(3)]
    for target in targets:
        kernel.add(target, -1)
    executor = kernel.executor(clock)
    want(executor, *((target, 50_000) for target in targets))
    kernel.killed_after = 1
    with pytest.raises(Killed):
        executor.apply()
    kernel.killed_after = None
    executor.apply()
    assert [kernel.value(target) for target in targets] == [50_000] * 3


def test_who_writes_for_long_lets_others_have_their_turn_and_goes_on(clock: ManualClock) -> None:
    kernel = FakeKernel()
    targets = [Target(CPU_QUOTA, f"kubepods/pod{number}") for number in range(5)]
    for target in targets:
        kernel.add(target, -1)
    kernel.before_write = lambda _: pass_seconds(clock, 0.06)
    executor = kernel.executor(clock)
    want(executor, *((target, 50_000) for target in targets))
    applied = [executor.apply() for _ in range(4)]
    figures = [(len(each.written), each.may_go_on) for each in applied]
    assert figures == [(2, True), (2, True), (1, False), (0, False)]
    assert {kernel.value(target) for target in targets} == {50_000}


def test_who_reads_for_long_lets_others_have_their_turn_and_goes_on(clock: ManualClock) -> None:
    kernel = FakeKernel()
    targets = [Target(CPU_QUOTA, f"kubepods/pod{number}") for number in range(7)]
    for target in targets:
        kernel.add(target, -1)
    kernel.before_read = lambda _: pass_seconds(clock, 0.01)
    executor = kernel.executor(clock)
    want(executor, *((target, 50_000) for target in targets))
    applied = executor.apply(look_for=0.03)
    assert applied.may_go_on
    assert 0 < len(applied.written) < len(targets)
    while executor.apply(look_for=0.03).may_go_on:
        assert clock.monotonic() < 10
    assert {kernel.value(target) for target in targets} == {50_000}


def test_what_waits_longest_to_be_read_comes_first(clock: ManualClock) -> None:
    """A child that wants more than its parent has is looked at again each time."""
    kernel = FakeKernel()
    parent, *children = [Target(CPU_QUOTA, f"kubepods{suffix}") for suffix in ("", *(f"/pod{n}" for n in range(6)))]
    kernel.add(parent, 10_000)
    for each in children:
        kernel.add(each, -1)
    kernel.before_read = lambda _: pass_seconds(clock, 0.02)
    executor = kernel.executor(clock)
    want(executor, *((each, 50_000) for each in children))
    for _ in range(10):
        executor.apply(look_for=0.03)
    assert {kernel.value(each) for each in children} == {10_000}


def test_nobody_goes_on_while_the_kernel_is_still_writing(clock: ManualClock) -> None:
    kernel = FakeKernel()
    kernel.add(QUOTA, -1)

    def slow(path: str) -> None:
        raise UnfinishedWriteError(path, "is still being written by the kernel")

    kernel.before_write = slow
    executor = kernel.executor(clock)
    want(executor, (QUOTA, 50_000))
    applied = executor.apply()
    assert (applied.written, applied.may_go_on) == ((), False)
    assert outcome(executor, QUOTA) is Outcome.NOT_WRITTEN_YET


def test_a_value_that_is_not_possible_is_named_once_whatever_the_reason_says(
    kernel: FakeKernel, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Reasons have figures that change every second."""
    executor, burst = kernel.executor(clock), Target(CPU_BURST, POD)
    for second in range(3):
        executor.submit("a", [DesiredSetting("a", burst, -5, f"it uses {second} cores")])
        executor.apply()
    assert caplog.text.count("is not possible") == 1
