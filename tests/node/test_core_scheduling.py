"""The calls of core scheduling, against a simulated kernel, and against this machine's where it has it."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from koordinator.node.core_scheduling import NO_COOKIE, SHARE_FROM, CoreScheduling, CoreSchedulingError, probe
from koordinator.node.errors import Unavailable
from tests.node.core_scheduling_kernel import CoreSchedulingKernel
from tests.node.machine import FakeMachine


def test_processes_get_one_new_cookie() -> None:
    kernel = CoreSchedulingKernel(1, 2, 3)
    given = CoreScheduling(kernel).create([1, 2])
    assert (kernel.cookies[1], kernel.cookies[2], kernel.cookies[3]) == (given.cookie, given.cookie, NO_COOKIE)


def test_a_cookie_is_carried_over_on_a_thread_of_its_own() -> None:
    kernel = CoreSchedulingKernel(1, 2)
    core = CoreScheduling(kernel)
    cookie = core.create([1]).cookie
    core.share(1, cookie, [2])
    assert (kernel.cookies[2], kernel.own_cookie) == (cookie, NO_COOKIE)


def test_cookies_are_taken_away() -> None:
    kernel = CoreSchedulingKernel(1, 2)
    core = CoreScheduling(kernel)
    core.create([1, 2])
    core.clear([1, 2])
    assert kernel.cookies == {1: NO_COOKIE, 2: NO_COOKIE}


def test_an_agent_with_a_cookie_gives_it_to_nobody() -> None:
    kernel = CoreSchedulingKernel(1)
    core = CoreScheduling(kernel)
    cookie = core.create([1]).cookie
    kernel.agent_cookie = 7
    with pytest.raises(CoreSchedulingError, match="the agent has the cookie 7, not 0"):
        core.clear([1])
    assert kernel.cookies[1] == cookie


def test_a_source_whose_number_is_another_process_gives_nothing() -> None:
    kernel = CoreSchedulingKernel(1, 2)
    core = CoreScheduling(kernel)
    cookie = core.create([1]).cookie
    kernel.cookies[1] = 99
    with pytest.raises(CoreSchedulingError, match="process 1 has the cookie 99"):
        core.share(1, cookie, [2])
    assert kernel.cookies[2] == NO_COOKIE


def test_a_process_that_has_ended_does_not_keep_the_others_out() -> None:
    kernel = CoreSchedulingKernel(2, 3)
    given = CoreScheduling(kernel).create([1, 2, 3])
    assert (given.processes, list(given.refused)) == ((2, 3), [1])


def test_a_process_that_may_not_be_touched_is_named() -> None:
    kernel = CoreSchedulingKernel(1, 2, 3)
    kernel.forbidden.add(2)
    given = CoreScheduling(kernel).create([1, 2, 3])
    assert given.refused == {2: "prctl PR_SCHED_CORE of process 2: Operation not permitted"}
    assert kernel.cookies[3] == given.cookie


def test_a_source_that_ends_meanwhile_is_an_error() -> None:
    kernel = CoreSchedulingKernel(1, 2)
    core = CoreScheduling(kernel)
    cookie = core.create([1]).cookie

    def end(command: int, process: int) -> None:
        if command == SHARE_FROM:
            del kernel.cookies[process]

    kernel.before = end
    with pytest.raises(CoreSchedulingError, match="No such process"):
        core.share(1, cookie, [2])


def test_no_process_is_an_error() -> None:
    with pytest.raises(CoreSchedulingError, match="there is no process"):
        CoreScheduling(CoreSchedulingKernel()).create([])


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.EINVAL, "Invalid argument"), (errno.ENODEV, "hyper-threads"), (errno.EPERM, "Operation not permitted")],
)
def test_a_kernel_without_it_says_why(code: int, reason: str) -> None:
    kernel = CoreSchedulingKernel()
    kernel.code = code
    missing = CoreScheduling(kernel).unavailable()
    assert isinstance(missing, Unavailable)
    assert reason in str(missing)


def test_looking_changes_nothing() -> None:
    kernel = CoreSchedulingKernel(1)
    core = CoreScheduling(kernel)
    assert (core.unavailable(), core.cookie(1), core.cookie(2), kernel.changes()) == (None, NO_COOKIE, None, [])


@pytest.mark.parametrize(
    ("file", "content", "how"),
    [
        ("/proc/sys/kernel/sched_core", "0\n", "sysctl kernel.sched_core"),
        ("/sys/kernel/debug/sched_features", "GENTLE_FAIR_SLEEPERS NO_CORE_SCHED\n", "sched_features CORE_SCHED"),
        ("/sys/kernel/debug/sched/features", "GENTLE_FAIR_SLEEPERS NO_CORE_SCHED\n", "sched_features CORE_SCHED"),
    ],
)
def test_switches_of_the_kernel_are_found(tmp_path: Path, file: str, content: str, how: str) -> None:
    machine = FakeMachine(tmp_path)
    machine.write(file, content)
    assert probe(machine.host) == how


def test_this_kernel_isolates_a_process_and_lets_it_go() -> None:
    """On the real kernel, which most machines of continuous integration cannot show: then it is skipped."""
    core = CoreScheduling()
    if (missing := core.unavailable()) is not None:
        pytest.skip(str(missing))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        given = core.create([process.pid])
        assert core.cookie(process.pid) == given.cookie != NO_COOKIE
        core.clear([process.pid])
        assert core.cookie(process.pid) == NO_COOKIE
