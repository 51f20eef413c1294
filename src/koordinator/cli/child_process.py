"""One child process: it cannot outlive its parent, and its last words are found in its log.

A child runs in a session of its own, so that Ctrl-C on the terminal reaches the parent alone. When the parent dies,
whatever kills it, the kernel sends the child SIGTERM (Linux), so that no orphan keeps a port or a lock.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_PR_SET_PDEATHSIG: Final = 1
_MOST_LOG_BYTES: Final = 64 << 10
"""Of the end of a log that is searched for the last words."""
_KLOG_HEADER: Final = re.compile(r"^[IWEF]\d{4} \S+ +\d+ \S+\] ")
_MOST_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Program:
    """What is to run."""

    name: str
    arguments: Sequence[str]
    """The whole command line."""
    ready: Callable[[], Awaitable[bool]]
    """Whether it does its work; polled until it is true before the next program starts, and from time to time after."""
    environment: Mapping[str, str] | None = None
    stop_seconds: float = 10.0
    """How long it may take to end after SIGTERM before it is killed."""


class ChildProcess:
    """A running or ended process of a program."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, log_offset: int) -> None:
        self._process = process
        self._log = log
        self._log_offset = log_offset
        """Where the log of this process begins: earlier ones wrote to the same file."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Nothing happens when it has ended already."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP has halted it."""
        try:
            return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        except psutil.Error:
            return False

    def how_it_ended(self) -> str:
        """``status 1 (its last error line)`` or ``signal SIGKILL``."""
        status = self._process.returncode
        assert status is not None, "it runs"
        if status < 0:
            return f"signal {_signal_name(-status)}"
        line = last_line(self._log, self._log_offset) if status else ""
        return f"status {status} ({line})" if line else f"status {status}"

    def log_tail(self, lines: int = 15) -> str:
        """The last lines that it wrote, indented."""
        try:
            text = _read_end(self._log, self._log_offset)
        except OSError as error:
            return f"  (its log cannot be read: {error})"
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or f"  (its log {self._log} is empty)"


async def start_child(program: Program, log: Path) -> ChildProcess:
    """Start it with its output appended to ``log``. Raises OSError."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        offset = output.tell()
        process = await asyncio.create_subprocess_exec(
            *program.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=None if program.environment is None else dict(program.environment),
            start_new_session=True,
            preexec_fn=_end_with_parent(os.getpid()) if sys.platform == "linux" else None,
        )
    return ChildProcess(process, log, offset)


def last_line(log: Path, offset: int = 0) -> str:
    """The last line with words in it after ``offset`` bytes, without its klog header; "" when there is none."""
    try:
        text = _read_end(log, offset)
    except OSError:
        return ""
    for line in reversed(text.splitlines()):
        # Tracebacks of exception groups are drawn with bars and end with a rule.
        words = _KLOG_HEADER.sub("", line).strip(" |+-")
        if any(map(str.isalnum, words)):
            return words if len(words) <= _MOST_CHARACTERS else words[: _MOST_CHARACTERS - 1] + "…"
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # A real-time signal.
        return str(number)


def _read_end(log: Path, offset: int) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(offset, size - _MOST_LOG_BYTES))
        return file.read().decode(errors="replace")


def _end_with_parent(parent: int) -> Callable[[], None]:
    prctl = ctypes.CDLL(None).prctl

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # The parent died in between: no process is left to send the signal.
            os._exit(1)

    return in_child
