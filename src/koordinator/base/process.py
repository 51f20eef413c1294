"""The process of a program: how signals and errors end it, how many files it may open, how soon it gets a CPU."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

from koordinator.base.errors import KoordinatorError
from koordinator.base.flag_types import Flag, FlagGroup

_FORESEEN: Final = (KoordinatorError, OSError)
_MOST_OPEN_FILES: Final = 1 << 16
_NICE: Final = -10
_LONGEST_SLEEP: Final = 1.0
"""The seconds that an event loop waits at most before it handles signals."""


def end_process() -> NoReturn:
    """Exit at once, with status 1: the last resort if work does not stop in time."""
    os._exit(1)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Install handlers for SIGTERM and SIGINT that set ``stop``; a second signal exits at once, as in Go programs.

    Call it in the main thread. It does not use a handler of the event loop, which would not be called while a task
    blocks the loop; that is exactly when an administrator wants to end the process.
    """
    loop, seen = asyncio.get_running_loop(), set[int]()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number in seen:
            os.write(2, f"{signal.Signals(number).name} for the second time: ending at once\n".encode())
            end_process()
        seen.add(number)
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    def wake_up() -> None:
        # If a signal arrives just before the loop goes to sleep, Python handles it only after the loop has woken up.
        if not stop.is_set():
            loop.call_later(_LONGEST_SLEEP, wake_up)

    wake_up()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def exit_status(program: str, error: Exception) -> int:
    """Return 1 after printing one line with the errors that users can fix to stderr; unexpected errors are raised
    again."""
    causes = list(_leaves(error))
    if not all(isinstance(cause, _FORESEEN) for cause in causes):
        raise error
    sys.stderr.write(f"{program}: {'; '.join(dict.fromkeys(map(str, causes)))}\n")
    return 1


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def allow_many_open_files() -> None:
    """Raise the soft limit of open files to the hard limit: each connection is a file. Go programs do so, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def nice_flag(group: FlagGroup) -> Flag[int]:
    """The flag of a program that containers wait for when they start."""
    return group.integer(
        "nice",
        _NICE,
        "How soon it gets a CPU when there are too few, as for nice(1): containers that start wait for it. 0: as other"
        " processes do.",
        minimum=-20,
        maximum=19,
    )


def set_nice(value: int) -> tuple[str, ...]:
    """Set the nice value of the calling thread and of all threads and processes that it starts from now on.

    Returns what to tell the administrator: nothing, or one sentence if the kernel refuses (a value below the present
    one needs CAP_SYS_NICE).
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, value)
    except OSError as error:
        present = os.getpriority(os.PRIO_PROCESS, 0)
        return (f"--nice={value} is not in force, it stays {present}: {error.strerror} (it needs CAP_SYS_NICE)",)
    return ()
