"""What a running ``koord up`` or ``koord demo`` writes down about itself, for ``koord status`` and for the next start.

It is a file of the data folder. It is valid as long as the folder is locked: the record of a process that was killed
stays behind, and names the programs that may have been left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from koordinator.cli.supervisor import ProgramState

_FILE = "up.json"


class ProgramRecord(msgspec.Struct, frozen=True, rename="camel"):
    """One program."""

    name: str
    condition: str
    """A ``Condition`` of the supervisor."""
    arguments: list[str]
    log: str
    since: datetime
    pid: int | None = None
    restarts: int = 0
    last_error: str = ""
    last_error_at: datetime | None = None
    serves: dict[str, str] = {}
    """What it serves -> URL."""


class ClusterRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The whole cluster."""

    command: str
    """``koord up`` or ``koord demo``."""
    pid: int
    version: str
    since: datetime
    phase: Literal["starting", "up", "stopping"]
    kubeconfig: str
    programs: list[ProgramRecord] = []


def program_record(state: ProgramState, log: Path, serves: dict[str, str]) -> ProgramRecord:
    return ProgramRecord(
        name=state.program.name,
        condition=state.condition.value,
        arguments=list(state.program.arguments),
        log=str(log),
        since=state.since,
        pid=state.process_id,
        restarts=state.restarts,
        last_error=state.last_end,
        last_error_at=state.last_end_at,
        serves=serves,
    )


def write_record(folder: Path, record: ClusterRecord) -> None:
    """Replace the record in one step."""
    temporary = folder / f".{_FILE}.{os.getpid()}"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    temporary.replace(folder / _FILE)


def read_record(folder: Path) -> ClusterRecord | None:
    """None where there is none, or none that this version can read."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=ClusterRecord)
    except (OSError, msgspec.DecodeError):
        return None


def remove_record(folder: Path) -> None:
    (folder / _FILE).unlink(missing_ok=True)


def end_left_programs(
    record: ClusterRecord, report: Callable[[str], None], *, patience: float = 3.0, stop_seconds: float = 5.0
) -> None:
    """End what is left of a cluster whose ``koord`` was killed; return when it is gone.

    A program ends by itself when that happens, if the system can signal it; it gets ``patience`` seconds. One that
    hangs or is halted is ended. A process counts only if its command line is the recorded one: numbers are used again.
    """
    left = {process.pid: program.name for program in record.programs for process in _processes_of(program)}
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in left if psutil.pid_exists(pid)], patience)
    for process in alive:
        report(f"ending {left[process.pid]} (process {process.pid}), which an earlier {record.command} has left")
        _signal(process.resume)
        _signal(process.terminate)
    _, alive = psutil.wait_procs(alive, stop_seconds)
    for process in alive:
        _signal(process.kill)
    psutil.wait_procs(alive, stop_seconds)


def _processes_of(program: ProgramRecord) -> list[psutil.Process]:
    try:
        process = psutil.Process(program.pid) if program.pid is not None else None
        return [process] if process is not None and process.cmdline() == program.arguments else []
    except psutil.Error:
        return []


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.NoSuchProcess:
        return
