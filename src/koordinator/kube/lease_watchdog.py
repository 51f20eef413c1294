"""The kernel kills a leader whose lease ends before its work has stopped, so that it cannot write any more.

Between the client's fencing check and the system call that sends a request there are always some instructions. A
process that is stopped there (SIGSTOP, a debugger, the freezer of a container runtime) and continues after its lease
has ended would send the request, whatever it checks in Python: Python runs signal handlers between two bytecodes, and
an event loop may write several requests without any. A kernel timer that sends SIGKILL has no such gap. It fires in
time even if the process is stopped, or, in a frozen cgroup, before the next instruction.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Final, Protocol

_SIGEV_SIGNAL: Final = 0
_TIMER_ABSTIME: Final = 1


class LeaseWatchdog(Protocol):
    """Kills the process at a deadline, unless the deadline is extended or the watchdog is stopped before."""

    def end_at(self, deadline: float) -> None:
        """Set or replace the deadline, a time of ``SystemClock.monotonic``."""
        ...

    def stop(self) -> None:
        """Disarm the watchdog: the program makes no more writes as a leader."""
        ...


class _Value(ctypes.Union):
    _fields_ = (("integer", ctypes.c_int), ("pointer", ctypes.c_void_p))


class _SignalEvent(ctypes.Structure):
    """``struct sigevent``, 64 bytes on every Linux."""

    _fields_ = (
        ("value", _Value),
        ("signal_number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * (64 - ctypes.sizeof(_Value) - 2 * ctypes.sizeof(ctypes.c_int))),
    )


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class KernelWatchdog:
    """A POSIX timer on the clock of ``SystemClock.monotonic``. Children do not inherit it."""

    def __init__(self) -> None:
        """Raises OSError if the kernel rejects another timer (RLIMIT_SIGPENDING)."""
        self._library = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _SignalEvent(signal_number=signal.SIGKILL, notify=_SIGEV_SIGNAL)
        self._call("timer_create", time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer))

    def end_at(self, deadline: float) -> None:
        # A time of zero would disarm the timer.
        seconds, nanoseconds = divmod(max(1, int(deadline * 1e9)), 10**9)
        self._set(_TimeSpec(seconds, nanoseconds))

    def stop(self) -> None:
        self._set(_TimeSpec(0, 0))

    def _set(self, value: _TimeSpec) -> None:
        spec = _TimerSpec(_TimeSpec(0, 0), value)
        self._call("timer_settime", self._timer, _TIMER_ABSTIME, ctypes.byref(spec), None)

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, name)(*arguments) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{name}: {os.strerror(error)}")


class NoWatchdog:
    """For systems other than Linux, on which the programs run for evaluation only."""

    def end_at(self, deadline: float) -> None:
        pass

    def stop(self) -> None:
        pass


def lease_watchdog() -> LeaseWatchdog:
    return KernelWatchdog() if sys.platform == "linux" else NoWatchdog()
