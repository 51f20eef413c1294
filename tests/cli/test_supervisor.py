"""The supervisor, with real child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from koordinator.base.clock import ManualClock, SystemClock
from koordinator.cli.supervisor import Program, ProgramFailed, Supervisor


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
        await until(lambda: supervisor.process_id("worker") not in (None, first))
        await supervisor.stop()
        await watching
        return reports

    reports = asyncio.run(scenario())
    assert reports == [f"worker ended with signal SIGKILL; starting it again in 0.5 s (log: {tmp_path / 'worker.log'})"]


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
        "from koordinator.cli.supervisor import Program, Supervisor\n"
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
