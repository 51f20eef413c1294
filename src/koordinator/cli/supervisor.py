"""Child processes kept alive: started in order, restarted with back-off when they end, all stopped together.

What becomes of them is reported in plain words, and once: a program that ends again and again is not reported each
time. ``Supervisor.states`` has the details at any time.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.said_once import Reminder
from koordinator.cli.child_process import ChildProcess, Program, start_child

_FIRST_BACKOFF: Final = 0.5
_LAST_BACKOFF: Final = 30.0
_STEADY_AFTER: Final = 30.0
"""A child that has run this long is trusted again: it starts again with the first back-off, and is called healthy even
when it ended more than once before."""
_POLL_SECONDS: Final = 0.05
_START_SECONDS: Final = 300.0
"""A program that is not ready by then never will be; on a machine that is busy with something else, it takes a
minute."""
_SAID_AFTER: Final = 10.0
_RESPONSE_SECONDS: Final = 5.0
"""How long a running program may take to say that it is well."""
_FIRST_RESPONSE_SECONDS: Final = 30.0
"""And one that is starting, when the processor has more to do than at any other time."""
_PROBE_EVERY: Final = 10.0
_PATIENCE_SECONDS: Final = 2.0
"""How long stopping may take before it is said what is waited for."""


class ProgramFailed(KoordinatorError):
    """A program ended before it was ready; the text ends with the last lines of its log."""


class Condition(StrEnum):
    """What a program is doing."""

    STARTING = "starting"
    RUNNING = "running"
    NOT_ANSWERING = "not responding"
    RESTARTING = "restarting"
    """It has ended, and has not been ready since."""
    STOPPED = "stopped"


@dataclass(slots=True)
class ProgramState:
    """One program as its supervisor knows it."""

    program: Program
    since: datetime
    """When the present process was started."""
    condition: Condition = Condition.STARTING
    process_id: int | None = None
    restarts: int = 0
    last_end: str = ""
    """How the latest process that ended by itself did so, with its last error line."""
    last_end_at: datetime | None = None


class Supervisor:
    """Runs programs until ``stop``.

    ``report`` is called with their changes, in plain words; ``on_change`` is called whenever ``states`` has changed.
    """

    def __init__(
        self,
        log_folder: Path,
        clock: Clock,
        report: Callable[[str], None],
        start_seconds: float = _START_SECONDS,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._log_folder = log_folder
        self._clock = clock
        self._report = report
        self._start_seconds = start_seconds
        self._on_change = on_change
        self._states: dict[str, ProgramState] = {}
        self._children: dict[str, ChildProcess] = {}
        self._restarters: list[asyncio.Task[None]] = []

    @property
    def states(self) -> Sequence[ProgramState]:
        """All programs, in the order in which they were started."""
        return tuple(self._states.values())

    @property
    def unhealthy(self) -> Sequence[str]:
        """The names of programs that do not do their work; empty when the cluster is healthy."""
        return [name for name, state in self._states.items() if state.condition is not Condition.RUNNING]

    def log_path(self, name: str) -> Path:
        return self._log_folder / f"{name}.log"

    def process_id(self, name: str) -> int | None:
        """The process number of a running program."""
        child = self._children.get(name)
        return child.pid if child is not None and child.returncode is None else None

    async def start(self, program: Program) -> None:
        """Start ``program``, return when it is ready and keep it running from then on. What takes long is said.

        Raises ProgramFailed when it ends first or takes too long.
        """
        self._states[program.name] = ProgramState(program, self._clock.now())
        try:
            child = await self._spawn(program)
        except OSError as error:
            raise ProgramFailed(f"{program.name} cannot be started: {error}") from error
        began = self._clock.monotonic()
        reminder = Reminder(self._clock, after=_SAID_AFTER)
        while not await _is_healthy(program, _FIRST_RESPONSE_SECONDS):
            if child.returncode is not None:
                raise ProgramFailed(f"{program.name} ended with status {child.returncode}:\n{child.log_tail()}")
            now = self._clock.monotonic()
            if now - began > self._start_seconds:
                raise ProgramFailed(
                    f"{program.name} was not ready within {self._start_seconds:.0f} s:\n{child.log_tail()}"
                )
            if reminder.is_due():
                self._report(
                    f"waiting for {program.name} (process {child.pid}) to be ready, for {now - began:.0f} s so far; "
                    f"the end of its log ({self.log_path(program.name)}): {child.log_tail(1).strip()}"
                )
            await self._clock.sleep(_POLL_SECONDS)
        self._set(program, Condition.RUNNING)
        self._restarters.append(asyncio.create_task(self._keep(program, child), name=f"keep {program.name}"))

    async def run(self) -> None:
        """Return after ``stop``; raises what was not foreseen."""
        done, _ = await asyncio.wait(self._restarters, return_when=asyncio.FIRST_EXCEPTION)
        for restarter in done:
            if not restarter.cancelled():
                restarter.result()

    async def probe(self) -> None:
        """Check from time to time whether all programs still respond, until cancelled.

        One that fails twice in a row is reported: a process can be there and yet do nothing.
        """
        silent: dict[str, int] = {}
        while True:
            await self._clock.sleep(_PROBE_EVERY)
            running = [
                state for state in self.states if state.condition in (Condition.RUNNING, Condition.NOT_ANSWERING)
            ]
            healthy = await asyncio.gather(*(self._is_well(state.program) for state in running))
            for state, well in zip(running, healthy, strict=True):
                name = state.program.name
                silent[name] = 0 if well else silent.get(name, 0) + 1
                self._update(state, silent[name])

    async def stop(self) -> None:
        """End all programs and return when none is left.

        The one that was started first ends last: the others may have something to say to it, such as that a lease is
        free.
        """
        for restarter in self._restarters:
            restarter.cancel()
        await asyncio.gather(*self._restarters, return_exceptions=True)
        running = [program for state in self.states if self.process_id((program := state.program).name) is not None]
        for program in running:
            # One that was halted by SIGSTOP would sleep through the signal to end.
            self._children[program.name].signal(signal.SIGCONT)
        first = [program for program in running if program is self.states[0].program]
        await asyncio.gather(*(self._end(program) for program in running if program not in first))
        await asyncio.gather(*(self._end(program) for program in first))

    def kill(self) -> None:
        """End all programs at once, whatever they are doing."""
        for child in self._children.values():
            child.signal(signal.SIGKILL)

    async def _end(self, program: Program) -> None:
        child = self._children[program.name]
        child.signal(signal.SIGTERM)
        patience = min(_PATIENCE_SECONDS, program.stop_seconds)
        if not await _ends_within(child, patience):
            if program.stop_seconds > patience:
                self._report(f"waiting for {program.name} (process {child.pid}) to end; Ctrl-C once more kills it")
            if not await _ends_within(child, program.stop_seconds - patience):
                self._report(f"{program.name} did not stop within {program.stop_seconds:.0f} s and is killed")
                child.signal(signal.SIGKILL)
                await child.wait()
        self._set(program, Condition.STOPPED)

    async def _keep(self, program: Program, child: ChildProcess) -> None:
        """Start ``program`` again whenever it has ended."""
        state = self._states[program.name]
        backoff, in_a_row = _FIRST_BACKOFF, 0
        while True:
            started = self._clock.monotonic()
            await self._watch(program, child, in_a_row)
            if self._clock.monotonic() - started > _STEADY_AFTER:
                backoff, in_a_row = _FIRST_BACKOFF, 0
            in_a_row += 1
            state.last_end, state.last_end_at = child.how_it_ended(), self._clock.now()
            self._report_end(state, in_a_row, backoff)
            self._set(program, Condition.RESTARTING)
            while True:
                await self._clock.sleep(backoff)
                backoff = min(backoff * 2, _LAST_BACKOFF)
                state.restarts += 1
                try:
                    child = await self._spawn(program)
                    break
                except OSError as error:
                    state.last_end, state.last_end_at = f"no process ({error})", self._clock.now()
                    self._on_change()

    async def _watch(self, program: Program, child: ChildProcess, ends_in_a_row: int) -> None:
        """Return when the process has ended; say meanwhile when it does its work again."""
        async with asyncio.TaskGroup() as group:
            recovery = group.create_task(self._recover(program, ends_in_a_row)) if ends_in_a_row else None
            await child.wait()
            if recovery is not None:
                recovery.cancel()

    async def _recover(self, program: Program, ends_in_a_row: int) -> None:
        while not await _is_healthy(program):
            await self._clock.sleep(_POLL_SECONDS)
        if ends_in_a_row > 1:
            await self._clock.sleep(_STEADY_AFTER)
        self._set(program, Condition.RUNNING)
        restarts = f" after {ends_in_a_row} restarts" if ends_in_a_row > 1 else ""
        self._report(f"{program.name} runs again{restarts}; {self._health()}")

    def _report_end(self, state: ProgramState, in_a_row: int, backoff: float) -> None:
        name, log = state.program.name, self.log_path(state.program.name)
        if in_a_row == 1:
            self._report(f"{name} ended with {state.last_end}; starting it again in {backoff:g} s (log: {log})")
        elif in_a_row == 2:
            self._report(
                f"the cluster is not healthy: {name} ended again, with {state.last_end}; it is tried again after "
                f"pauses of up to {_LAST_BACKOFF:g} s, and its recovery is said once it has run for "
                f"{_STEADY_AFTER:g} s (log: {log})"
            )

    def _update(self, state: ProgramState, failures: int) -> None:
        """Report the change from responding to not responding and back."""
        name = state.program.name
        if state.condition is Condition.RUNNING and failures == 2:
            self._set(state.program, Condition.NOT_ANSWERING)
            self._report(
                f"the cluster is not healthy: {name} (process {state.process_id}) runs but has not responded for "
                f"{2 * _PROBE_EVERY:g} s (log: {self.log_path(name)})"
            )
        elif state.condition is Condition.NOT_ANSWERING and not failures:
            self._set(state.program, Condition.RUNNING)
            self._report(f"{name} responds again; {self._health()}")

    def _health(self) -> str:
        unhealthy = self.unhealthy
        return f"not healthy yet: {', '.join(unhealthy)}" if unhealthy else "the cluster is healthy"

    async def _is_well(self, program: Program) -> bool:
        child = self._children[program.name]
        return not child.is_stopped() and await _is_healthy(program)

    async def _spawn(self, program: Program) -> ChildProcess:
        child = await start_child(program, self.log_path(program.name))
        self._children[program.name] = child
        state = self._states[program.name]
        state.process_id, state.since = child.pid, self._clock.now()
        self._on_change()
        return child

    def _set(self, program: Program, condition: Condition) -> None:
        state = self._states[program.name]
        state.condition = condition
        if condition in (Condition.RESTARTING, Condition.STOPPED):
            state.process_id = None
        self._on_change()


async def _is_healthy(program: Program, seconds: float = _RESPONSE_SECONDS) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await program.ready()
    except TimeoutError:
        return False


async def _ends_within(child: ChildProcess, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await child.wait()
    except TimeoutError:
        return False
    return True
