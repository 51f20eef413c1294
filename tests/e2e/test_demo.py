"""``koord demo`` as a process; what its day is like, the report itself judges."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import psutil


def test_a_signal_ends_it_with_all_that_it_has_started(tmp_path: Path) -> None:
    async def scenario() -> tuple[int | None, str, list[psutil.Process]]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "koordinator.cli.main", "demo", f"--data={tmp_path}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        output = ""
        while "starting koord-manager" not in output:
            line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
            assert line, output
            output += line
        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGTERM)
        rest, _ = await asyncio.wait_for(process.communicate(), 30)
        return process.returncode, output + rest.decode(), [child for child in children if child.is_running()]

    status, output, left = asyncio.run(scenario())
    assert (status, left) == (143, [])
    assert "the day takes 36 seconds" in output.splitlines()[0]
    assert "Traceback" not in output
