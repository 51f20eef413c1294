"""A leader that was suspended past its lease ends when it is resumed, before it can write.

What stops a process (SIGSTOP, a debugger, the freezer of a container runtime) stops its clocks of leadership with it:
the work is not cancelled in time, and the event loop may still hold requests that were ready to be sent. Requests that
are made after resuming are refused by the client's fence; for those others nothing helps but to end. A machine that is
suspended sends no signal; there the fence alone counts, whose clock has gone on meanwhile.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

from koordinator.base.process import end_process


def end_when_resumed_too_late(is_overdue: Callable[[], bool], end: Callable[[], None] = end_process) -> None:
    """Have SIGCONT end the process when ``is_overdue``: its term is over, and its work has not been stopped yet.

    Signals are seen to before the event loop goes on. For the main thread.
    """

    def resumed(number: int, frame: FrameType | None) -> None:
        if is_overdue():
            os.write(2, b"this process was stopped for longer than its lease lasts; another instance may lead\n")
            end()

    signal.signal(signal.SIGCONT, resumed)
