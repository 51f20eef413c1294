"""How programs end, how many files they may open, how soon they get a CPU."""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import signal
import subprocess
import sys

import pytest

from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.process import allow_many_open_files, exit_status, stop_on_signals

_STOPPING = """
import asyncio, uvloop
from koordinator.base.process import stop_on_signals

async def work():
    stop = asyncio.Event()
    stop_on_signals(stop)
    print("working", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    await asyncio.sleep({pause})

{run}(work())
"""
_STUCK = """
import asyncio, os, signal, uvloop
from koordinator.base.process import stop_on_signals

async def work():
    stop_on_signals(asyncio.Event())
    first = signal.getsignal(signal.SIGINT)
    # Not print: the second signal may come while it writes, and it must not be called within itself.
    signal.signal(signal.SIGINT, lambda *arguments: (first(*arguments), os.write(1, b"stopping\\n")))
    print("working", flush=True)
    while True:
        pass

{run}(work())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
def test_a_signal_asks_to_stop(number: signal.Signals, run: str) -> None:
    assert _signalled(_STOPPING.format(pause=0, run=run), number) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_same_signal_once_more_ends_at_once(number: signal.Signals) -> None:
    status, reported = _signalled(_STOPPING.format(pause=60, run="uvloop.run"), number, number)
    assert status == 1
    assert reported == f"{number.name} for the second time: ending at once\n".encode()


@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
def test_the_second_signal_ends_what_gives_the_event_loop_no_turn_any_more(run: str) -> None:
    status, reported = _signalled(_STUCK.format(run=run), signal.SIGINT, signal.SIGINT)
    assert status == 1
    assert reported == b"SIGINT for the second time: ending at once\n"


def test_the_event_loop_never_sleeps_so_long_that_a_signal_is_missed() -> None:
    class Sleeps(selectors.DefaultSelector):
        longest: float | None = None

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout != 0:
                Sleeps.longest = timeout
                stop.set()
            return super().select(0)

    stop, handlers = asyncio.Event(), [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    async def work() -> None:
        stop_on_signals(stop)
        await stop.wait()

    try:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Sleeps())) as runner:
            runner.run(work())
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(number, handler)
    assert Sleeps.longest is not None
    assert Sleeps.longest <= 1


def test_a_terminal_and_a_supervisor_may_both_ask_to_stop() -> None:
    assert _signalled(_STOPPING.format(pause=0.2, run="uvloop.run"), signal.SIGINT, signal.SIGTERM) == (0, b"")


def _signalled(program: str, *numbers: signal.Signals) -> tuple[int, bytes]:
    """Exit status and stderr of a process that is sent these signals, one for each line that it prints."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for number in numbers:
            process.stdout.readline()
            process.send_signal(number)
        reported = process.stderr.read()
    return process.returncode, reported


def test_all_that_people_can_put_right_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    missing = ConfigurationError("flag", "x", "y")
    errors = ExceptionGroup("", [missing, ExceptionGroup("", [OSError("address in use"), missing])])
    assert exit_status("program", errors) == 1
    assert capsys.readouterr().err == f"program: {missing}; address in use\n"


def test_a_defect_beside_them_is_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    errors = ExceptionGroup("", [KoordinatorError("foreseen"), ZeroDivisionError("a defect")])
    with pytest.raises(ExceptionGroup) as raised:
        exit_status("program", errors)
    assert raised.value is errors
    assert capsys.readouterr().err == ""


def test_as_many_files_as_the_system_grants_may_be_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        allow_many_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 65536), hard)
        allow_many_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_threads_that_start_later_have_the_nice_value_too() -> None:
    thread = "Thread(target=lambda: print(os.getpriority(os.PRIO_PROCESS, 0))).start()"
    assert _in_a_process_of_its_own("print(set_nice(19))", thread) == "()\n19\n"


def test_a_refused_nice_value_is_a_remark() -> None:
    present = os.getpriority(os.PRIO_PROCESS, 0)
    assert _in_a_process_of_its_own("os.getuid() or os.setuid(65534)", "print(*set_nice(-20))") == (
        f"--nice=-20 is not in force, it stays {present}: Permission denied (it needs CAP_SYS_NICE)\n"
    )


def _in_a_process_of_its_own(*lines: str) -> str:
    imports = ("import os", "from threading import Thread", "from koordinator.base.process import set_nice")
    program = "\n".join((*imports, *lines))
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout
