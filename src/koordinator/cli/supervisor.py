"""Child processes kept alive: started in order, restarted with back-off when they end, stopped in reverse order.

A child writes to its own log file. It cannot outlive its supervisor, not even one that is killed: the kernel then
sends it SIGTERM (Linux), so that no orphan keeps a port or a lock.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError

_PR_SET_PDEATHSIG: Final = 1
_FIRST_BACKOFF: Final = 0.5
_LAST_BACKOFF: Final = 30.0
_STEADY_AFTER: Final = 60.0
"""A child that has run this long starts again with the first back-off."""


class ProgramFailed(KoordinatorError):
    """A program ended before it was ready; the text ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Program:
    """One child process."""

    name: str
    arguments: Sequence[str]
    """The whole command line."""
    ready: Callable[[], Awaitable[bool]]
    """Whether it does its work by now; asked until it says yes, before the next program starts."""
    environment: Mapping[str, str] | None = None
    stop_seconds: float = 10.0
    """How long it may take to end after SIGTERM before it is killed."""


class Supervisor:
    """Runs programs until cancelled. ``report`` is told each start, end and restart, in plain words."""

    def __init__(
        self, log_folder: Path, clock: Clock, report: Callable[[str], None], start_seconds: float = 60.0
    ) -> None:
        self._log_folder = log_folder
        self._clock = clock
        self._report = report
        self._start_seconds = start_seconds
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._order: list[Program] = []
        self._stopping = False

    def log_path(self, name: str) -> Path:
        return self._log_folder / f"{name}.log"

    def process_id(self, name: str) -> int | None:
        """The process number of a running program."""
        process = self._running.get(name)
        return process.pid if process is not None and process.returncode is None else None

    async def start(self, program: Program) -> None:
        """Start ``program`` and return when it is ready. Raises ProgramFailed when it ends first or takes too long."""
        process = await self._spawn(program)
        self._order.append(program)
        deadline = self._clock.monotonic() + self._start_seconds
        while not await program.ready():
            if process.returncode is not None:
                raise ProgramFailed(f"{program.name} ended with status {process.returncode}:\n{self._tail(program)}")
            if self._clock.monotonic() > deadline:
                raise ProgramFailed(
                    f"{program.name} was not ready within {self._start_seconds:.0f} s:\n{self._tail(program)}"
                )
            await self._clock.sleep(0.05)

    async def run(self) -> None:
        """Watch over the started programs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for program in self._order:
                group.create_task(self._keep(program), name=f"keep {program.name}")

    async def stop(self) -> None:
        """End all programs, the last started first; returns when none is left."""
        self._stopping = True
        for program in reversed(self._order):
            process = self._running.get(program.name)
            if process is None or process.returncode is not None:
                continue
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), program.stop_seconds)
            except TimeoutError:
                self._report(f"{program.name} did not stop within {program.stop_seconds:.0f} s and is killed")
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _keep(self, program: Program) -> None:
        backoff = _FIRST_BACKOFF
        started = self._clock.monotonic()
        while True:
            status = await self._running[program.name].wait()
            if self._stopping:
                return
            if self._clock.monotonic() - started > _STEADY_AFTER:
                backoff = _FIRST_BACKOFF
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            log = self.log_path(program.name)
            self._report(f"{program.name} ended with {how}; starting it again in {backoff:g} s (log: {log})")
            await self._clock.sleep(backoff)
            backoff = min(backoff * 2, _LAST_BACKOFF)
            started = self._clock.monotonic()
            await self._spawn(program)

    async def _spawn(self, program: Program) -> asyncio.subprocess.Process:
        self._log_folder.mkdir(parents=True, exist_ok=True)
        with self.log_path(program.name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *program.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if program.environment is None else dict(program.environment),
                # Its own session: Ctrl-C reaches the supervisor alone, which stops the children in order.
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        self._running[program.name] = process
        return process

    def _tail(self, program: Program, lines: int = 15) -> str:
        try:
            text = self.log_path(program.name).read_text(errors="replace")
        except OSError as error:
            return f"(its log cannot be read: {error})"
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
