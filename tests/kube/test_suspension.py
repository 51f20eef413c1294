"""A leader that was suspended past its lease ends before it goes on; one that was not, goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from koordinator.kube.suspension import end_when_resumed_too_late

_LEADER = """
import asyncio, sys, time, uvloop
from koordinator.kube.suspension import end_when_resumed_too_late

async def work():
    term_end = time.monotonic() + float(sys.argv[1])
    end_when_resumed_too_late(lambda: time.monotonic() >= term_end)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("leading", flush=True)
    await reader.readline()
    print("written", flush=True)

uvloop.run(work())
"""
"""Writes as soon as it is told to; the lease lasts for so many seconds."""


@pytest.fixture
def ended() -> Iterator[list[str]]:
    """What came of a SIGCONT to this process; the handler is taken away again."""
    before = signal.getsignal(signal.SIGCONT)
    yield []
    signal.signal(signal.SIGCONT, before)


@pytest.mark.parametrize(("overdue", "expected"), [(True, ["ended"]), (False, [])])
def test_only_a_leader_whose_term_is_over_ends(
    overdue: bool, expected: list[str], ended: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    end_when_resumed_too_late(lambda: overdue, lambda: ended.append("ended"))
    os.kill(os.getpid(), signal.SIGCONT)
    assert ended == expected
    assert ("another instance may lead" in capfd.readouterr().err) == overdue


@pytest.mark.parametrize(
    ("term", "status", "output"), [("0.0", 1, "leading\n"), ("3600.0", 0, "leading\nwritten\n")], ids=["over", "not"]
)
def test_what_waited_to_be_written_is_not_written_after_the_term(term: str, status: int, output: str) -> None:
    command = [sys.executable, "-c", _LEADER, term]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as leader:
        assert leader.stdin is not None
        assert leader.stdout is not None
        assert leader.stderr is not None
        said = leader.stdout.readline()
        leader.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, leader.pid, os.WSTOPPED | os.WNOWAIT)
        # What it was waiting for happens while it stands still, so that both await it when it goes on.
        leader.stdin.write(b"go\n")
        leader.stdin.flush()
        leader.send_signal(signal.SIGCONT)
        said += leader.stdout.read()
        told = leader.stderr.read()
    assert (leader.returncode, said.decode()) == (status, output)
    assert (b"another instance may lead" in told) == (status == 1)
