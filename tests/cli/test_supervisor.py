"""The supervisor, with real child processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from koordinator.base.clock import ManualClock, SystemClock
from koordinator.cli.child_process import Program, last_line
from koordinator.cli.supervisor import Condition, ProgramFailed, Supervisor


def python(name: str, code: str, ready: Callable[[], Awaitable[bool]], stop_seconds: float = 10.0) -> Program:
    return Program(name, [sys.executable, "-c", code], ready, stop_seconds=stop_seconds)


async def at_once() -> bool:
    return True


def file_appears(path: Path) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        return path.exists()

    return ready


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_program_that_ends_before_it_is_ready_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    async def scenario() -> None:
        supervisor = Supervisor(tmp_path, SystemClock(), print)
        await supervisor.start(python("broken", "import sys; print('no luck today'); sys.exit(3)", never))

    with pytest.raises(ProgramFailed, match=r"broken ended with status 3:\n  no luck today"):
        asyncio.run(scenario())


def test_a_program_that_is_never_ready_is_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()

        async def never() -> bool:
            return False

        supervisor = Supervisor(tmp_path, clock, print, start_seconds=5)
        starting = asyncio.ensure_future(supervisor.start(python("slow", "import time; time.sleep(60)", never)))
        await until(lambda: clock.sleepers > 0)
        try:
            for _ in range(200):
                await clock.advance(0.05)
            await starting
        finally:
            await supervisor.stop()

    with pytest.raises(ProgramFailed, match="slow was not ready within 5 s"):
        asyncio.run(scenario())


def test_it_is_said_what_is_waited_for_while_a_program_starts_slowly(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        clock, reports, is_ready = ManualClock(), list[str](), False

        async def ready() -> bool:
            return is_ready

        supervisor = Supervisor(tmp_path, clock, reports.append)
        code = "import time; print('reading', flush=True); time.sleep(60)"
        starting = asyncio.ensure_future(supervisor.start(python("slow", code, ready)))
        log = supervisor.log_path("slow")
        await until(lambda: clock.sleepers > 0 and log.exists() and "reading" in log.read_text())
        try:
            for _ in range(90):
                await clock.advance(1)
            is_ready = True
            await clock.advance(1)
            await starting
        finally:
            await supervisor.stop()
        return reports

    reports = asyncio.run(scenario())
    assert len(reports) == 3
    assert re.match(r"waiting for slow \(process \d+\) to be ready, for 10 s so far; the end of its log", reports[0])
    assert reports[0].endswith("slow.log): reading")


def test_a_killed_program_is_started_again_after_the_back_off(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        reports: list[str] = []
        clock = ManualClock()
        supervisor = Supervisor(tmp_path, clock, reports.append)
        await supervisor.start(python("worker", "import signal; signal.pause()", at_once))
        first = supervisor.process_id("worker")
        assert first is not None
        watching = asyncio.ensure_future(supervisor.run())
        os.kill(first, signal.SIGKILL)
        await until(lambda: clock.sleepers > 0)
        await clock.advance(0.5)
        await until(lambda: supervisor.process_id("worker") not in (None, first) and not supervisor.unhealthy)
        await supervisor.stop()
        await watching
        return reports

    assert asyncio.run(scenario()) == [
        f"worker ended with signal SIGKILL; starting it again in 0.5 s (log: {tmp_path / 'worker.log'})",
        "worker runs again; the cluster is healthy",
    ]


def test_a_program_that_ends_again_and_again_is_reported_once_with_its_last_error_line(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    code = (
        "import pathlib, signal, sys\n"
        f"if pathlib.Path({str(fault)!r}).exists(): print('I said no'); sys.exit(1)\n"
        "signal.pause()"
    )

    async def scenario() -> tuple[list[str], list[str], int]:
        reports: list[str] = []
        clock = ManualClock()
        supervisor = Supervisor(tmp_path, clock, reports.append)
        await supervisor.start(python("worker", code, at_once))
        fault.touch()
        os.kill(supervisor.process_id("worker") or 0, signal.SIGKILL)
        (state,) = supervisor.states
        for backoff in (0.5, 1.0, 2.0, 4.0):
            await until(lambda: state.condition is Condition.RESTARTING and state.process_id is None)
            if backoff == 4.0:
                fault.unlink()
            restarts = state.restarts
            await until(lambda: clock.sleepers > 0)
            await clock.advance(backoff)
            await until(lambda restarts=restarts: state.restarts > restarts)  # type: ignore[misc]
        before = list(reports)
        await until(lambda: state.process_id is not None and clock.sleepers > 0)
        assert supervisor.unhealthy == ["worker"]
        await clock.advance(30.0)
        await until(lambda: not supervisor.unhealthy)
        await supervisor.stop()
        return before, reports[len(before) :], state.restarts

    before, after, restarts = asyncio.run(scenario())
    assert [report for report in before if "status 1 (I said no)" in report] == before[-1:]
    assert before[-1].startswith("the cluster is not healthy: worker ended again")
    assert after == ["worker runs again after 4 restarts; the cluster is healthy"]
    assert restarts == 4


def test_a_program_that_no_longer_responds_is_reported_and_so_is_its_recovery(tmp_path: Path) -> None:
    well = True

    async def ready() -> bool:
        return well

    async def scenario() -> tuple[list[str], list[str]]:
        nonlocal well
        reports: list[str] = []
        clock = ManualClock()
        supervisor = Supervisor(tmp_path, clock, reports.append)
        await supervisor.start(python("worker", "import signal; signal.pause()", ready))
        probing = asyncio.ensure_future(supervisor.probe())
        unhealthy = []
        for responds in (True, False, False, False, True):
            well = responds
            await until(lambda: clock.sleepers > 0)
            await clock.advance(10.0)
            await until(lambda: clock.sleepers > 0)
            unhealthy.append(",".join(supervisor.unhealthy))
        probing.cancel()
        await supervisor.stop()
        return reports, unhealthy

    reports, unhealthy = asyncio.run(scenario())
    assert unhealthy == ["", "", "worker", "worker", ""]
    assert len(reports) == 2
    assert reports[0].startswith("the cluster is not healthy: worker (process ")
    assert reports[1] == "worker responds again; the cluster is healthy"


def test_a_program_halted_by_a_signal_does_not_respond(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        clock = ManualClock()
        supervisor = Supervisor(tmp_path, clock, lambda text: None)
        await supervisor.start(python("worker", "import signal; signal.pause()", at_once))
        worker = psutil.Process(supervisor.process_id("worker"))
        worker.suspend()
        await until(lambda: worker.status() == psutil.STATUS_STOPPED)
        probing = asyncio.ensure_future(supervisor.probe())
        for _ in range(2):
            await until(lambda: clock.sleepers > 0)
            await clock.advance(10.0)
            await until(lambda: clock.sleepers > 0)
        unhealthy = list(supervisor.unhealthy)
        probing.cancel()
        await supervisor.stop()
        return unhealthy

    assert asyncio.run(scenario()) == ["worker"]


def test_a_halted_program_ends_cleanly_like_any_other(tmp_path: Path) -> None:
    flag, ended = tmp_path / "up", tmp_path / "ended"
    code = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(ended)!r}).touch(), sys.exit(0)))\n"
        f"pathlib.Path({str(flag)!r}).touch()\n"
        # Not pause(): a signal that comes just before it would be slept through.
        "while True: time.sleep(0.01)"
    )

    async def scenario() -> list[str]:
        reports: list[str] = []
        supervisor = Supervisor(tmp_path, SystemClock(), reports.append)
        await supervisor.start(python("worker", code, file_appears(flag)))
        os.kill(supervisor.process_id("worker") or 0, signal.SIGSTOP)
        await supervisor.stop()
        return reports

    assert asyncio.run(scenario()) == []
    assert ended.exists()


def test_killing_asks_nobody(tmp_path: Path) -> None:
    flag = tmp_path / "up"
    code = (
        "import signal, pathlib\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(flag)!r}).touch()\n"
        "while True: signal.pause()"
    )

    async def scenario() -> None:
        supervisor = Supervisor(tmp_path, SystemClock(), print)
        await supervisor.start(python("deaf", code, file_appears(flag)))
        supervisor.kill()
        await until(lambda: supervisor.process_id("deaf") is None)
        await supervisor.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", ""),
        ("Traceback:\n  File x\nValueError: no\n", "ValueError: no"),
        ("E1121 05:07:25.123456   4242 binder.py:17] cannot bind\n", "cannot bind"),
        ("  | OSError: port taken\n  +------------------------------------\n\n", "OSError: port taken"),
    ],
)
def test_the_last_line_of_a_log_is_the_one_that_says_something(tmp_path: Path, log: str, line: str) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    assert last_line(path) == line


def test_programs_stop_in_reverse_order(tmp_path: Path) -> None:
    code = (
        "import signal, sys, pathlib\n"
        "name = {name!r}\n"
        "def end(*_):\n"
        "    with open({log!r}, 'a') as log: log.write(name)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "pathlib.Path({flag!r}).touch()\n"
        "signal.pause()\n"
    )
    log = tmp_path / "order"

    async def scenario() -> None:
        supervisor = Supervisor(tmp_path / "logs", SystemClock(), print)
        for name in "ab":
            flag = tmp_path / name
            source = code.format(name=name, log=str(log), flag=str(flag))
            await supervisor.start(python(name, source, file_appears(flag)))
        await supervisor.stop()

    asyncio.run(scenario())
    assert log.read_text() == "ba"


def test_a_program_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    flag = tmp_path / "up"
    code = (
        "import signal, pathlib\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(flag)!r}).touch()\n"
        "while True: signal.pause()"
    )

    async def scenario() -> list[str]:
        reports: list[str] = []
        supervisor = Supervisor(tmp_path, SystemClock(), reports.append)
        await supervisor.start(python("deaf", code, file_appears(flag), stop_seconds=0.2))
        await supervisor.stop()
        assert supervisor.process_id("deaf") is None
        return reports

    assert asyncio.run(scenario()) == ["deaf did not stop within 0 s and is killed"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel signals orphans on Linux only")
def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from koordinator.base.clock import SystemClock\n"
        "from koordinator.cli.child_process import Program\n"
        "from koordinator.cli.supervisor import Supervisor\n"
        "async def ready(): return True\n"
        "async def main():\n"
        f"    supervisor = Supervisor(Path({str(tmp_path)!r}), SystemClock(), print)\n"
        "    await supervisor.start(Program('child', [sys.executable, '-c', 'import signal; signal.pause()'], ready))\n"
        "    print(supervisor.process_id('child'), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )

    async def scenario() -> None:
        parent = await asyncio.create_subprocess_exec(sys.executable, str(script), stdout=asyncio.subprocess.PIPE)
        output, _ = await parent.communicate()
        child = Path("/proc") / output.decode().strip()
        # An ended child waits for its adopter to collect it; a zombie has no command line.
        await until(lambda: not child.exists() or not (child / "cmdline").read_bytes())

    asyncio.run(scenario())
