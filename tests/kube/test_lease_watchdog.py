"""The kernel ends a leader at its time, also while it stands still, and no other."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from koordinator.kube.lease_watchdog import KernelWatchdog, LeaseWatchdog, lease_watchdog

_LEADER = """
import sys, time
from koordinator.base.clock import SystemClock
from koordinator.kube.lease_watchdog import lease_watchdog

watchdog = lease_watchdog()
first = 0.0
for line in sys.stdin:
    if line == "stop\\n":
        watchdog.stop()
    elif line == "outlive\\n":
        time.sleep(max(0, first - SystemClock.monotonic()))
    else:
        deadline = SystemClock.monotonic() + float(line)
        first = first or deadline
        watchdog.end_at(deadline)
    print("done", flush=True)
"""
"""Each line is a command: so many seconds to live, stop, or wait until the first deadline is over."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the timer that outlives a stopped process is Linux's")


def leader(*commands: str) -> subprocess.Popen[str]:
    """A process that has carried out all ``commands``."""
    process = subprocess.Popen([sys.executable, "-c", _LEADER], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    for command in commands:
        process.stdin.write(f"{command}\n")
        process.stdin.flush()
        if process.stdout.readline() != "done\n":
            break
    return process


def how_it_ends(process: subprocess.Popen[str]) -> int:
    """Its status once it has nothing more to do."""
    process.communicate()
    return process.returncode


def test_a_leader_that_stands_still_is_killed_when_its_lease_ends() -> None:
    process = leader("0.2")
    process.send_signal(signal.SIGSTOP)
    # It is never told to go on. On a busy machine it may have ended before it could be stopped.
    process.wait()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_a_deadline_that_has_passed_already_kills_at_once() -> None:
    assert how_it_ends(leader("-1e9")) == -signal.SIGKILL


@pytest.mark.parametrize("commands", [("3600",), ("2", "3600", "outlive"), ("2", "stop", "outlive")], ids=" then ".join)
def test_a_leader_that_renews_or_stops_lives(commands: tuple[str, ...]) -> None:
    assert how_it_ends(leader(*commands)) == 0


def test_on_linux_the_kernel_watches() -> None:
    watchdog: LeaseWatchdog = lease_watchdog()
    assert isinstance(watchdog, KernelWatchdog)
